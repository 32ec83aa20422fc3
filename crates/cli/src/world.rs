//! What is known of the cluster: the pods, requests and budgets that matter, read once.

use std::collections::BTreeMap;

use futures::AsyncReadExt as _;
use futures::future::try_join_all;
use kube::api::ListParams;
use kube::core::Request as ListRequest;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use usher_decide::maintenance::pods::stays_by_choice;
use usher_decide::snapshot::{Budget, BudgetOnWire, Key, Pod, PodOnWire, Request, RequestOnWire};

use crate::Error;
use crate::error::{is_code, is_missing};
use crate::reading::{Page, Read};

/// So many objects are read at a time.
const PAGE: u32 = 500;
/// Up to so many pods are asked for one by one; a whole namespace may be much larger.
const FEW: usize = 20;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub pods: BTreeMap<Key, Pod>,
    pub requests: BTreeMap<Key, Request>,
    pub budgets: BTreeMap<Key, Budget>,
    /// Budgets may not be read, so nothing can be said about them.
    pub budgets_are_hidden: bool,
    /// The same of requests.
    pub requests_are_hidden: bool,
}

impl World {
    pub fn pod_of(&self, request: &Request) -> Option<&Pod> {
        self.pods.get(&request.pod_key())
    }

    pub fn request_of(&self, pod: &Pod) -> Option<&Request> {
        self.requests.get(&pod.request_key())
    }

    /// The pods that stay because their workloads say so, with their requests.
    pub fn staying(&self) -> Self {
        let mut world = Self::default();
        for (key, request) in self.requests.iter().filter(|(_, request)| stays_by_choice(request)) {
            if let Some(pod) = self.pod_of(request).filter(|pod| pod.uid == request.pod_uid) {
                world.pods.insert(pod.key.clone(), pod.clone());
                world.requests.insert(key.clone(), request.clone());
            }
        }
        world
    }

    /// `None`: they may not be read.
    pub fn budgets_of(&self, pod: &Pod) -> Option<Vec<&Budget>> {
        let namespace = &pod.key.namespace;
        let of_namespace = self.budgets.range(Key::new(namespace.clone(), "")..);
        let of_namespace = of_namespace.take_while(|(key, _)| key.namespace == *namespace);
        let selecting =
            || of_namespace.map(|(_, budget)| budget).filter(|budget| budget.selects(pod)).collect();
        (!self.budgets_are_hidden).then(selecting)
    }

    /// The requests of a namespace, or of all, with their pods and budgets.
    pub async fn read(client: &Client, namespace: Option<&str>, labels: Option<&str>) -> Result<Self, Error> {
        let requests: Vec<RequestOnWire> = list(&scoped(client, namespace), labels).await?;
        let requests: Vec<Request> = requests.into_iter().map(Request::from).collect();
        let mut world = Self::default();
        if requests.len() <= FEW {
            let pods = try_join_all(requests.iter().map(|request| read_pod(client, request))).await?;
            world.pods = pods.into_iter().flatten().map(|pod| (pod.key.clone(), pod)).collect();
        } else {
            let pods: Vec<PodOnWire> = list(&scoped(client, namespace), None).await?;
            world.pods = pods.into_iter().map(Pod::from).map(|pod| (pod.key.clone(), pod)).collect();
        }
        if !requests.is_empty() {
            world.read_budgets(client, namespace).await?;
        }
        world.requests = requests.into_iter().map(|request| (request.key.clone(), request)).collect();
        Ok(world)
    }

    pub async fn read_budgets(&mut self, client: &Client, namespace: Option<&str>) -> Result<(), Error> {
        match list_raw(&scoped::<BudgetOnWire>(client, namespace), None, Budget::from).await {
            Ok(budgets) => {
                self.budgets = budgets.into_iter().map(|budget| (budget.key.clone(), budget)).collect();
            }
            Err(why) if is_code(&why, 403) => self.budgets_are_hidden = true,
            Err(why) => return Err(why.into()),
        }
        Ok(())
    }
}

/// All objects of a namespace, or of all.
pub fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<Read<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn read_pod(client: &Client, request: &Request) -> Result<Option<Pod>, Error> {
    let pods: Api<Read<PodOnWire>> = Api::namespaced(client.clone(), &request.key.namespace);
    match pods.get(&request.pod_name).await {
        Ok(pod) => Ok(pod.object().map(Pod::from)),
        Err(why) if is_missing(&why) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

pub async fn list<K>(api: &Api<Read<K>>, labels: Option<&str>) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    list_as(api, labels).await
}

/// The same, with each page made smaller before the next one is read.
pub async fn list_as<K, T>(api: &Api<Read<K>>, labels: Option<&str>) -> Result<Vec<T>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    T: From<K>,
{
    list_raw(api, labels, T::from).await.map_err(|why| with_selector(labels, why))
}

/// The same, exactly as the server sent them, whether or not they can be understood.
pub async fn list_exactly<K>(api: &Api<Read<K>>, labels: Option<&str>) -> Result<Vec<Read<K>>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut pages = Pages::new(labels);
    while !pages.are_done {
        let page = api.list(&pages.parameters).await;
        let page = page.map(|page| (page.items, page.metadata.continue_.filter(|token| !token.is_empty())));
        pages.take(page).map_err(|why| with_selector(labels, why))?;
    }
    Ok(pages.all)
}

fn with_selector(labels: Option<&str>, why: kube::Error) -> Error {
    let is_bad = matches!(&why, kube::Error::Api(status) if status.code == 400);
    match (labels, Error::from(why)) {
        (Some(labels), why) if is_bad => Error::Usage(format!(
            "the selector {labels:?} is not understood: {why}; write for example app=web"
        )),
        (_, other) => other,
    }
}

async fn list_raw<K, T>(
    api: &Api<Read<K>>,
    labels: Option<&str>,
    convert: impl Fn(K) -> T,
) -> Result<Vec<T>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let read = |text: &str| {
        let page = Page::read(text)?;
        Ok(Page { objects: page.objects.into_iter().map(&convert).collect(), next: page.next })
    };
    list_by(api, labels, read).await
}

/// All objects, with pages that are read from their text by `read`.
pub async fn list_by<K, T>(
    api: &Api<Read<K>>,
    labels: Option<&str>,
    read: impl Fn(&str) -> Result<Page<T>, serde_json::Error>,
) -> Result<Vec<T>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let client = api.clone().into_client();
    let mut pages = Pages::new(labels);
    // One for all pages: they are large, and clearing new memory takes as long as reading them.
    let mut buffer = Vec::new();
    while !pages.are_done {
        let page = match read_text(&client, api.resource_url(), &pages.parameters, buffer).await {
            Ok(text) => {
                let page = read(&text).map_err(kube::Error::SerdeError);
                buffer = text.into_bytes();
                page
            }
            Err(why) => {
                buffer = Vec::new();
                Err(why)
            }
        };
        pages.take(page.map(|page| (page.objects, page.next)))?;
    }
    Ok(pages.all)
}

/// A page as the server sent it, in the place of what was in the buffer.
async fn read_text(
    client: &Client,
    url: &str,
    parameters: &ListParams,
    mut buffer: Vec<u8>,
) -> Result<String, kube::Error> {
    let request = ListRequest::new(url).list(parameters).map_err(kube::Error::BuildRequest)?;
    let mut body = std::pin::pin!(client.request_stream(request).await?);
    buffer.clear();
    body.read_to_end(&mut buffer).await.map_err(|why| kube::Error::Service(why.into()))?;
    String::from_utf8(buffer).map_err(kube::Error::FromUtf8)
}

/// A list that is read page by page. One that takes so long that the server has forgotten its beginning starts anew.
struct Pages<T> {
    /// Of the next one.
    parameters: ListParams,
    all: Vec<T>,
    are_done: bool,
}

impl<T> Pages<T> {
    fn new(labels: Option<&str>) -> Self {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector = labels.map(str::to_string);
        Self { parameters, all: Vec::new(), are_done: false }
    }

    /// A page, and the token of the next one.
    fn take<P: IntoIterator<Item = T>>(
        &mut self,
        page: Result<(P, Option<String>), kube::Error>,
    ) -> Result<(), kube::Error> {
        match page {
            Ok((page, next)) => {
                self.all.extend(page);
                self.are_done = next.is_none();
                self.parameters.continue_token = next;
            }
            Err(why) if is_code(&why, 410) && self.parameters.continue_token.is_some() => {
                self.parameters.continue_token = None;
                self.all.clear();
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }
}

/// The name that every object on a server has.
pub fn key_of(object: &impl ResourceExt) -> Key {
    Key::new(object.namespace().unwrap_or_default(), object.name_any())
}
