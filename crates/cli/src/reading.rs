//! Objects as they are read for people: leniently, and with strings that a terminal only prints.
//!
//! The server takes more than our types do, such as a time in the year 9999 in `managedFields`, and anybody who may write one object can
//! put it there. Such an object must not keep others from being seen. Nearly all objects are read from their text at once, and only into
//! the fields of their type: a command may see a hundred thousand. One for which that fails is taken as JSON and converted by itself: as
//! it is, else with times that can be read, else without its status. One that still cannot be read is left out and named, once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Error;
use crate::terminal::escaped;

/// An object that was read, whether or not it could be understood.
#[derive(Debug, Clone)]
pub struct Read<K> {
    /// Exactly as the server sent it.
    text: Box<RawValue>,
    object: Result<K, Box<Unreadable>>,
}

/// An object that cannot be understood.
#[derive(Debug, Clone)]
struct Unreadable {
    /// Name, namespace, uid and version; nothing else.
    metadata: ObjectMeta,
    why: String,
}

impl<K: Resource<DynamicType = ()>> Read<K> {
    /// The object, unless it has to be left out; then it is named.
    pub fn object(self) -> Option<K> {
        match self.object {
            Ok(object) => Some(object),
            Err(unread) => {
                let Unreadable { metadata, why } = &*unread;
                note(format!("{} cannot be read and is left out: {why}", describe::<K>(metadata)));
                None
            }
        }
    }

    /// The object that was asked for.
    ///
    /// # Errors
    /// It cannot be understood.
    pub fn wanted(self) -> Result<K, Error> {
        self.object.map_err(|unread| {
            let Unreadable { metadata, why } = &*unread;
            Error::Refused(format!(
                "{} cannot be read: {why}; see it with kubectl get -o yaml",
                describe::<K>(metadata)
            ))
        })
    }

    /// The same text, read as another type.
    pub fn again<L: Resource<DynamicType = ()> + DeserializeOwned>(self) -> Read<L> {
        let object = at_once(self.text.get()).map_or_else(|| leniently(self.text.get()), Ok);
        Read { text: self.text, object }
    }

    /// The object, if it can be understood.
    pub fn as_object(&self) -> Option<&K> {
        self.object.as_ref().ok()
    }
}

fn describe<K: Resource<DynamicType = ()>>(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    let place = metadata.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {place}{name}", K::kind(&()))
}

usher_api::resource_within!(Read, metadata, metadata_mut);

fn metadata<K: Resource<DynamicType = ()>>(read: &Read<K>) -> &ObjectMeta {
    match &read.object {
        Ok(object) => object.meta(),
        Err(unread) => &unread.metadata,
    }
}

fn metadata_mut<K: Resource<DynamicType = ()>>(read: &mut Read<K>) -> &mut ObjectMeta {
    match &mut read.object {
        Ok(object) => object.meta_mut(),
        Err(unread) => &mut unread.metadata,
    }
}

/// As the server sent it.
impl<K> Serialize for Read<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        usher_api::lenient::value_of(self.text.get()).serialize(serializer)
    }
}

impl<'de, K: Resource<DynamicType = ()> + DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let object = at_once(text.get()).map_or_else(|| leniently(text.get()), Ok);
        Ok(Self { text, object })
    }
}

/// An object of our own, to be sent.
pub fn sent<K: Resource<DynamicType = ()> + Serialize>(object: K) -> Result<Read<K>, Error> {
    let text = serde_json::value::to_raw_value(&object).map_err(|why| Error::Server(why.to_string()))?;
    Ok(Read { text, object: Ok(object) })
}

/// A page of a list, with what could be read of it, and the token of the next one.
pub struct Page<K> {
    pub objects: Vec<K>,
    pub next: Option<String>,
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Page<K> {
    /// # Errors
    /// It is no list.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let (objects, metadata) = match at_once::<Items<K>>(text) {
            Some(page) => (page.items.unwrap_or_default(), page.metadata),
            // Some of them are not as they should be: each by itself.
            None => {
                let page: Items<Read<K>> = serde_json::from_str(text)?;
                let objects = page.items.into_iter().flatten().filter_map(Read::object);
                (objects.collect(), page.metadata)
            }
        };
        Ok(Self { objects, next: metadata.continue_.filter(|token| !token.is_empty()) })
    }
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Items<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

/// Reads what is as it should be, and has nothing that would have to be escaped.
fn at_once<T: DeserializeOwned>(text: &str) -> Option<T> {
    let is_safe = !escapes() || is_plain(text);
    is_safe.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Whether no string in this JSON has an unsafe letter, as far as can be told without reading them: letters beyond ASCII may be unsafe,
/// and others are where they are escaped. Quotation marks are not, nor what API servers escape for the sake of HTML.
fn is_plain(json: &str) -> bool {
    let is_plain_escape = |after: &str| {
        after.starts_with(['"', '\\', '/'])
            || ["u003c", "u003e", "u0026"].iter().any(|html| after.starts_with(html))
    };
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let after = &rest[at + 1..];
        if !is_plain_escape(after) {
            return false;
        }
        rest = &after[1..];
    }
    json.is_ascii() && !json.contains('\u{7f}')
}

fn leniently<K: Resource<DynamicType = ()> + DeserializeOwned>(text: &str) -> Result<K, Box<Unreadable>> {
    let raw = usher_api::lenient::value_of(text);
    let text = |field: &str| raw["metadata"][field].as_str().map(|text| escaped(text).into_owned());
    let metadata = ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    };
    convert(&raw, &metadata).map_err(|why| Box::new(Unreadable { metadata, why }))
}

fn convert<K: Resource<DynamicType = ()> + DeserializeOwned>(
    raw: &Value,
    metadata: &ObjectMeta,
) -> Result<K, String> {
    let mut value = Cow::Borrowed(raw);
    if escapes() && has_unsafe_text(raw) {
        escape(value.to_mut());
    }
    let first = match from_json(&value) {
        Ok(object) => return Ok(object),
        Err(why) => why,
    };
    usher_api::lenient::correct(value.to_mut());
    if let Ok(object) = from_json(&value) {
        return Ok(object);
    }
    let why = escaped(&first).into_owned();
    if value.to_mut().as_object_mut().is_some_and(|fields| fields.remove("status").is_some())
        && let Ok(object) = from_json(&value)
    {
        note(format!("the status of {} cannot be read and is left out: {why}", describe::<K>(metadata)));
        return Ok(object);
    }
    Err(why)
}

/// Reads JSON through its text. Code to read a type is generated for each kind of input, so all types have one kind: text.
fn from_json<K: DeserializeOwned>(value: &Value) -> Result<K, String> {
    let read = match serde_json::from_str(&value.to_string()) {
        // The text is nested too deeply. Only `managedFields` may be, and `value_of` has read them apart from the rest.
        Err(why) if why.is_syntax() => serde_json::from_str(&without_managed_fields(value).to_string()),
        read => read,
    };
    read.map_err(|why| {
        // The text is our own and well-formed: what is wrong is a value, and nobody has seen its position.
        if why.is_syntax() {
            return "a value is not of its type".to_owned();
        }
        let position = format!(" at line {} column {}", why.line(), why.column());
        let why = why.to_string();
        why.strip_suffix(&position).unwrap_or(&why).to_owned()
    })
}

fn without_managed_fields(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    value
}

fn has_unsafe_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(crate::terminal::is_unsafe),
        Value::Array(all) => all.iter().any(has_unsafe_text),
        Value::Object(fields) => fields.values().any(has_unsafe_text),
        _ => false,
    }
}

fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = escaped(text).into_owned(),
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(fields) => fields.values_mut().for_each(escape),
        _ => {}
    }
}

/// What is kept of a command's reading: what has to be said in the end.
#[derive(Default)]
struct Reading {
    notes: RefCell<BTreeSet<String>>,
}

tokio::task_local! {
    static READING: Reading;
    /// Strings are wanted as they are, because they are printed as JSON or YAML.
    static EXACT: ();
}

/// Runs a command, and returns what could not be read meanwhile, each named once.
pub async fn noting<T>(command: impl Future<Output = T>) -> (T, BTreeSet<String>) {
    READING
        .scope(Reading::default(), async {
            let done = command.await;
            (done, READING.with(|reading| reading.notes.take()))
        })
        .await
}

/// Reads strings as they are, for output that escapes by itself.
pub async fn exactly<T>(reading: impl Future<Output = T>) -> T {
    EXACT.scope((), reading).await
}

fn escapes() -> bool {
    EXACT.try_with(|()| ()).is_err()
}

fn note(text: String) {
    // Outside of a command, which is in tests of single functions, nobody listens.
    let _ = READING.try_with(|reading| reading.notes.borrow_mut().insert(text));
}

/// The names of a kind's objects. Nothing else of them is asked for.
///
/// # Errors
/// As the server answers.
pub async fn names<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    parameters: &ListParams,
) -> Result<Vec<String>, kube::Error> {
    #[derive(Debug, Clone, Deserialize)]
    struct Named {
        metadata: Name,
    }
    #[derive(Debug, Clone, Deserialize)]
    struct Name {
        name: String,
    }
    let request = Request::new(K::url_path(&(), namespace)).list_metadata(parameters);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let named: ObjectList<Named> = client.request(request).await?;
    Ok(named.items.into_iter().map(|one| escaped(&one.metadata.name).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use usher_api::NodeMaintenance;

    fn maintenance() -> Value {
        json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": "m", "uid": "u", "managedFields": [{"manager": "x", "operation": "Update"}]},
            "spec": {"stage": "Idle", "reason": "a\u{1b}b\nc", "nodeSelector": {"nodeSelectorTerms": []}},
        })
    }

    fn read(value: &Value) -> Read<NodeMaintenance> {
        Read::deserialize(value).unwrap()
    }

    #[tokio::test]
    async fn a_time_in_the_year_9999_does_not_make_an_object_unreadable() {
        let mut hostile = maintenance();
        hostile["metadata"]["managedFields"][0]["time"] = json!("9999-12-31T23:59:59Z");
        serde_json::from_value::<NodeMaintenance>(hostile.clone()).unwrap_err();
        let (object, notes) = noting(async { read(&hostile).object() }).await;
        assert_eq!(object.unwrap().metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("x"));
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[tokio::test]
    async fn an_object_is_read_however_deeply_its_managed_fields_are_nested() {
        for depth in (110..140).chain([5000]) {
            let nested = format!("{}1{}", "{\"f:a\":".repeat(depth), "}".repeat(depth));
            let mut hostile = maintenance();
            hostile["metadata"]["managedFields"][0]["fieldsV1"] = json!("NESTED");
            let text = hostile.to_string().replace("\"NESTED\"", &nested);
            let (object, notes) =
                noting(async { serde_json::from_str::<Read<NodeMaintenance>>(&text).unwrap().object() })
                    .await;
            assert_eq!(object.unwrap().spec.reason, "a^[b\\nc", "{depth}");
            assert!(notes.is_empty(), "{depth}: {notes:?}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong_with_an_object_but_not_at_which_position() {
        let why = |path: &str, value: Value| {
            let mut hostile = maintenance();
            *hostile.pointer_mut(path).unwrap() = value;
            (from_json::<NodeMaintenance>(&hostile).unwrap_err(), hostile)
        };
        let values = [json!(7), json!(1.5), json!([1]), json!({"a": 1}), json!(true)];
        let reasons = values.into_iter().map(|value| ("/spec/reason", value));
        for (path, value) in reasons.chain([("/spec", json!({})), ("/spec/stage", json!("Never"))]) {
            let (why, hostile) = why(path, value);
            assert_eq!(why, serde_json::from_value::<NodeMaintenance>(hostile).unwrap_err().to_string());
        }
        assert_eq!(why("/spec/stage", json!(7)).0, "a value is not of its type");
    }

    #[tokio::test]
    async fn an_object_whose_status_cannot_be_read_is_read_without_and_named_once() {
        let mut hostile = maintenance();
        hostile["status"] = json!({"nodes": "many"});
        let (object, notes) = noting(async { (read(&hostile).object(), read(&hostile).object()).0 }).await;
        assert!(object.unwrap().status.is_none());
        let [note] = &notes.into_iter().collect::<Vec<_>>()[..] else { panic!("named once") };
        assert!(
            note.starts_with("the status of NodeMaintenance m cannot be read and is left out: "),
            "{note}"
        );
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_left_out_and_named_once() {
        let mut hostile = maintenance();
        hostile["spec"]["stage"] = json!("Never");
        let (objects, notes) = noting(async { [read(&hostile).object(), read(&hostile).object()] }).await;
        assert_eq!(objects.iter().flatten().count(), 0);
        let [note] = &notes.into_iter().collect::<Vec<_>>()[..] else { panic!("named once") };
        assert!(note.starts_with("NodeMaintenance m cannot be read and is left out: "), "{note}");
        let refused = read(&hostile).wanted().unwrap_err().to_string();
        assert!(refused.starts_with("NodeMaintenance m cannot be read: "), "{refused}");
    }

    #[test]
    fn text_without_unsafe_letters_is_told_by_what_is_escaped_in_it() {
        for plain in ["a", "k:{\"uid\":\"x\"}", "back\\slash", "a<b>&c", "ends in \\\\", "\\n"] {
            let json = json!({ "text": plain }).to_string();
            assert!(is_plain(&json), "{json}");
        }
        assert!(is_plain(r#"{"a":"\u003cb\u003e\u0026"}"#));
        for odd in ["\n", "\u{1b}[2J", "\u{7f}", "\u{202e}", "\\\n", "\t", "ü"] {
            let json = json!({ "text": odd }).to_string();
            assert!(!is_plain(&json), "{json}");
        }
        assert!(!is_plain(r#"{"a":"\u001b"}"#));
    }

    #[tokio::test]
    async fn a_page_with_an_object_that_cannot_be_read_has_all_others() {
        let mut odd = maintenance();
        odd["spec"]["stage"] = json!("Never");
        let mut plain = maintenance();
        plain["spec"]["reason"] = json!("plain");
        for (items, wanted, unread) in [
            (vec![plain.clone(), plain.clone()], vec!["plain", "plain"], 0),
            (vec![plain.clone(), odd, maintenance()], vec!["plain", "a^[b\\nc"], 1),
        ] {
            let text = json!({"metadata": {"continue": "next"}, "items": items}).to_string();
            let (page, notes) = noting(async { Page::<NodeMaintenance>::read(&text).unwrap() }).await;
            let reasons: Vec<&str> = page.objects.iter().map(|one| one.spec.reason.as_str()).collect();
            assert_eq!((reasons, notes.len(), page.next.as_deref()), (wanted, unread, Some("next")));
        }
    }

    #[tokio::test]
    async fn strings_are_escaped_for_people_and_exact_in_what_is_printed_as_json() {
        let read_one = read(&maintenance());
        assert_eq!(serde_json::to_value(&read_one).unwrap(), maintenance());
        assert_eq!(read_one.object().unwrap().spec.reason, "a^[b\\nc");
        let exact = exactly(async { read(&maintenance()).object() }).await;
        assert_eq!(exact.unwrap().spec.reason, "a\u{1b}b\nc");
    }
}
