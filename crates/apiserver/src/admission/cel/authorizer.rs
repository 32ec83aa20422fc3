//! `authorizer`: what the caller, or a service account, may do. Answered by RBAC.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use crate::attributes::{Attributes, User};
use crate::auth::{Decision, Rbac, service_account};

/// A question on its way: who, and as much as is known of what.
#[derive(Debug, Clone)]
struct Question {
    rbac: Arc<Rbac>,
    user: User,
    about: About,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    Anything,
    Group(String),
    Resource(Box<Attributes>),
    Path(String),
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.about == other.about
    }
}
impl Eq for Question {}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        match self.about {
            About::Anything => "kubernetes.authorization.Authorizer",
            About::Group(_) => "kubernetes.authorization.GroupCheck",
            About::Resource(_) => "kubernetes.authorization.ResourceCheck",
            About::Path(_) => "kubernetes.authorization.PathCheck",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer(Decision);

impl Opaque for Answer {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

/// `authorizer`.
pub(super) fn authorizer(rbac: Arc<Rbac>, user: &User) -> Cel {
    value(Question { rbac, user: user.clone(), about: About::Anything })
}

/// `authorizer.requestResource`.
pub(super) fn request_resource(rbac: Arc<Rbac>, user: &User, attributes: &Attributes) -> Cel {
    let about = About::Resource(Box::new(Attributes { verb: String::new(), ..attributes.clone() }));
    value(Question { rbac, user: user.clone(), about })
}

fn value(question: Question) -> Cel {
    Cel::Opaque(Arc::new(question))
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("group", |This(this): This<Cel>, group: Arc<String>| {
        let question = of(&this)?;
        match question.about {
            About::Anything => Ok(question.with(About::Group(group.to_string()))),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function("path", |This(this): This<Cel>, path: Arc<String>| {
        let question = of(&this)?;
        match question.about {
            About::Anything if path.is_empty() => Err(failed("path", "path must not be empty")),
            About::Anything => Ok(question.with(About::Path(path.to_string()))),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function(
        "serviceAccount",
        |This(this): This<Cel>, namespace: Arc<String>, name: Arc<String>| {
            let question = of(&this)?;
            let user = service_account::user(&namespace, &name, "");
            match question.about {
                About::Anything => Ok(value(Question { user, ..question.clone() })),
                _ => Err(ExecutionError::NoSuchOverload),
            }
        },
    );
    context.add_function("resource", |This(this): This<Cel>, resource: Arc<String>| {
        let question = of(&this)?;
        match &question.about {
            About::Group(_) if resource.is_empty() => Err(failed("resource", "resource must not be empty")),
            About::Group(group) => Ok(question.with(About::Resource(Box::new(Attributes {
                group: group.clone(),
                version: "*".into(),
                resource: resource.to_string(),
                ..Attributes::default()
            })))),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function("subresource", |This(this): This<Cel>, text: Arc<String>| {
        narrowed(&this, |attributes| attributes.subresource = text.to_string())
    });
    context.add_function("namespace", |This(this): This<Cel>, text: Arc<String>| {
        narrowed(&this, |attributes| attributes.namespace = text.to_string())
    });
    context.add_function("name", |This(this): This<Cel>, text: Arc<String>| {
        narrowed(&this, |attributes| attributes.name = text.to_string())
    });
    // RBAC knows no selectors.
    context
        .add_function("fieldSelector", |This(this): This<Cel>, _text: Arc<String>| narrowed(&this, |_| ()));
    context
        .add_function("labelSelector", |This(this): This<Cel>, _text: Arc<String>| narrowed(&this, |_| ()));
    context.add_function("check", |This(this): This<Cel>, verb: Arc<String>| {
        let question = of(&this)?;
        let attributes = match &question.about {
            About::Resource(attributes) => Attributes { verb: verb.to_string(), ..(**attributes).clone() },
            About::Path(path) => {
                Attributes { verb: verb.to_string(), path: path.clone(), ..Attributes::default() }
            }
            _ => return Err(ExecutionError::NoSuchOverload),
        };
        Ok(Cel::Opaque(Arc::new(Answer(question.rbac.authorize(&question.user, &attributes)))))
    });
    context.add_function("allowed", |This(this): This<Cel>| answer(&this).map(|a| Cel::Bool(a.allowed)));
    context.add_function("reason", |This(this): This<Cel>| answer(&this).map(|a| text(&a.reason)));
    context.add_function("errored", |This(this): This<Cel>| answer(&this).map(|_| Cel::Bool(false)));
    context.add_function("error", |This(this): This<Cel>| answer(&this).map(|_| text("")));
}

impl Question {
    fn with(&self, about: About) -> Cel {
        value(Self { about, ..self.clone() })
    }
}

fn of(this: &Cel) -> Result<&Question, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Question>().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn narrowed(this: &Cel, change: impl FnOnce(&mut Attributes)) -> ResolveResult {
    let mut question = of(this)?.clone();
    match &mut question.about {
        About::Resource(attributes) => change(attributes),
        _ => return Err(ExecutionError::NoSuchOverload),
    }
    Ok(value(question))
}

fn answer(this: &Cel) -> Result<&Decision, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => {
            opaque.downcast_ref::<Answer>().map(|answer| &answer.0).ok_or(ExecutionError::NoSuchOverload)
        }
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn failed(function: &str, why: &str) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

fn text(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_string()))
}
