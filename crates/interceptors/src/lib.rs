//! For authors of interceptors and requesters: what it takes to have a part in the eviction of a pod.
//!
//! An *interceptor* answers for pods. It registers on them, is told when its turn on a request has come, reports while it works
//! and ends its turn. A *requester* wants pods gone. It asks, may take it back, and learns how it has ended. Between them stands
//! the eviction request controller, which gives out the turns. `docs/interceptors.md` has the contract in short.
//!
//! # An interceptor
//! ```no_run
//! use usher_interceptors::{InterceptorClass, InterceptorRunner, Lost, Removal, Turn, TurnError};
//!
//! async fn copy_data(_pod: &str) { /* the real work */ }
//! async fn throw_copy_away(_pod: &str) {}
//!
//! async fn hand_over(turn: Turn) -> Result<(), TurnError> {
//!     let pod = &turn.pod_ref().name;
//!     turn.allow_cancellation().await?;
//!     turn.progress("copying the data").await?;
//!     // Signs of life are shown for as long as the copy runs, and no longer.
//!     match turn.keep_alive_while(copy_data(pod)).await {
//!         Ok(()) => {}
//!         Err(Lost::Cancelled) => return Ok(throw_copy_away(pod).await),
//!         Err(lost) => return Err(lost.into()),
//!     }
//!     match turn.evict_pod().await? {
//!         Removal::Accepted | Removal::AlreadyGone => Ok(()),
//!         // The controller evicts it as soon as its budget allows.
//!         Removal::Refused(refusal) => turn.complete(format!("data copied; {refusal}")).await,
//!     }
//! }
//!
//! # async fn start(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let class = InterceptorClass::new("handover.example.com")?;
//! let never = InterceptorRunner::new(client, class).in_namespace("shop").run(hand_over).await;
//! # match never {}
//! # }
//! ```
//! Its pods carry the annotation, best from their template:
//! ```
//! # use usher_interceptors::InterceptorClass;
//! # let mut template = k8s_openapi::api::core::v1::PodTemplateSpec::default();
//! let class = InterceptorClass::new("handover.example.com")?;
//! class.annotate_template(&mut template, 12_000, Some("handover"))?;
//! # Ok::<(), usher_interceptors::RegistrationError>(())
//! ```
//!
//! # A requester
//! ```no_run
//! use usher_interceptors::{Outcome, Requester};
//! # async fn ask(client: kube::Client, pod: k8s_openapi::api::core::v1::Pod) -> Result<(), Box<dyn std::error::Error>> {
//! let requester = Requester::new(client, "maintenance.example.com")?;
//! let request = requester.request(&pod).await?;
//! match request.hold().await {
//!     Outcome::PodGone | Outcome::PodTerminal => println!("done"),
//!     outcome => println!("the pod stays: {outcome:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Without either
//! [`client`] is the protocol by itself, and [`api`] has the types that it takes:
//! ```no_run
//! use usher_interceptors::api::EvictionRequest;
//! use usher_interceptors::api::names::RequesterName;
//! use usher_interceptors::client::{Evicted, EvictionOptions, Requests, evict, requests::new_request};
//! # async fn by_hand(client: kube::Client, pod: &str, uid: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let ours = RequesterName::new("maintenance.example.com")?.finalizer();
//! let requests = Requests::new(kube::Api::<EvictionRequest>::namespaced(client.clone(), "shop"));
//! // The request of a pod has the name of its UID.
//! requests.create_or_join(uid, &ours, &new_request("shop", pod, uid, &ours, None), false, || true).await?;
//! requests.withdraw(uid, &ours, |finalizer| finalizer == ours).await?;
//! if let Evicted::Refused(why) = evict(client, "shop", pod, uid, EvictionOptions::default()).await? {
//!     println!("the pod stays: {why}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Crashes
//! All that is needed to go on is in the cluster. After a restart a handler is called again for every request whose turn is still
//! ours, with what was reported so far in [`Turn::status`]. So a handler begins by looking at what is done already, and each of
//! its steps can be done twice. A requester that comes back takes a [`Requester::handle`] or simply requests again.
//!
//! Where to start reading: [`runner`] calls the handler, [`turn`] is what it is given, [`turn_state`] judges whose turn it is;
//! [`requester`] is the other side.

mod class;
pub mod conformance;
mod latest;
mod removal;
pub mod requester;
mod result;
pub mod runner;
pub mod turn;
pub mod turn_state;

pub use class::{InterceptorClass, RegistrationError};
pub use removal::Removal;
pub use requester::{RequestError, RequestHandle, Requester};
pub use result::{Outcome, Progress, Update};
pub use runner::{Handler, HandlerError, InterceptorRunner};
pub use turn::{Turn, TurnError};
pub use turn_state::Lost;
/// The types of the API, and the names in it.
pub use usher_api as api;
pub use usher_api::report::ConditionStatus;
pub use usher_api::{Refusal, RefusalReason};
/// The protocol without a runner: eviction with its refusals told apart, requests, joining and withdrawing.
pub use usher_client as client;
pub use usher_client::Clock;
