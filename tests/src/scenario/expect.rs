//! What steps expect: of an object, of a list, of the order of effects.

use super::form::{Expect, Order};
use super::matching::{mismatch, unmatched};
use super::observe::Effect;
use super::selector::Selector;
use super::stage::{PAUSE, Stage};
use crate::Request;
use anyhow::{Result, bail};
use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Waits until it is so; then it has to stay so.
///
/// # Errors
/// It did not become so, or did not stay so.
pub async fn expect(stage: &Stage, expected: &Expect) -> Result<()> {
    let deadline = Instant::now() + expected.within;
    while let Some(why) = against(stage, expected).await? {
        if Instant::now() >= deadline {
            bail!("not within {:?}: {why}", expected.within);
        }
        sleep(PAUSE).await;
    }
    let until = Instant::now() + expected.stays;
    while Instant::now() < until {
        sleep(PAUSE).await;
        if let Some(why) = against(stage, expected).await? {
            bail!("it was so, but did not stay so for {:?}: {why}", expected.stays);
        }
    }
    Ok(())
}

async fn against(stage: &Stage, expected: &Expect) -> Result<Option<String>> {
    if !expected.expect.contains(' ') && expected.expect.contains('/') {
        one(stage, expected).await
    } else {
        list(stage, expected).await
    }
}

async fn one(stage: &Stage, expected: &Expect) -> Result<Option<String>> {
    let path = stage.target(&expected.expect).await?.path;
    let answer = stage.cluster.send(None, Request::new(Method::GET, &path)).await?;
    if answer.status == 404 {
        return Ok((!expected.absent).then(|| "it is not there".to_owned()));
    }
    if let Err(why) = answer.accepted() {
        return Ok(Some(why.to_string()));
    }
    let object = stage.nicknames.shorten(answer.body);
    if expected.absent {
        return Ok(Some(format!("it is there: {object}")));
    }
    let has = stage.filled(expected.has.as_ref().unwrap_or(&Value::Null)).await?;
    Ok(mismatch(&has, &object))
}

async fn list(stage: &Stage, expected: &Expect) -> Result<Option<String>> {
    let (kind, selector) = expected.expect.split_once(' ').unwrap_or((&expected.expect, ""));
    let mut items = stage.items(kind).await?;
    if !selector.is_empty() {
        let selector = Selector::parse(selector)?;
        items.retain(|item| selector.selects(item));
    }
    if let Some(filter) = &expected.filter {
        let filter = stage.filled(filter).await?;
        items.retain(|item| mismatch(&filter, item).is_none());
    }
    if let Some(count) = &expected.count
        && mismatch(count, &Value::from(items.len())).is_some()
    {
        return Ok(Some(format!("there should be {count}, but there are {}: {}", items.len(), told(&items))));
    }
    if let Some(all) = &expected.all {
        let all = stage.filled(all).await?;
        let wrong = items.iter().find_map(|item| Some((item, mismatch(&all, item)?)));
        if let Some((item, why)) = wrong {
            return Ok(Some(format!("of {}: {why}", item["metadata"]["name"])));
        }
    }
    let some = stage.filled(&Value::Array(expected.some.clone())).await?;
    if let Some(missing) = unmatched(some.as_array().map_or(&[], Vec::as_slice), &items) {
        return Ok(Some(format!("none is left with {missing} among {}", told(&items))));
    }
    if let Some(none) = &expected.none {
        let none = stage.filled(none).await?;
        if let Some(item) = items.iter().find(|item| mismatch(&none, item).is_none()) {
            return Ok(Some(format!("none should have {none}, but {} has", item["metadata"]["name"])));
        }
    }
    Ok(None)
}

/// The objects in few words.
fn told(items: &[Value]) -> String {
    let word = |item: &Value| {
        let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        if item["involvedObject"].is_object() {
            return format!("{} ({}: {})", text("/involvedObject/name"), text("/reason"), text("/message"));
        }
        format!("{} ({}, {})", text("/metadata/name"), text("/status/phase"), text("/spec/nodeName"))
    };
    let words: Vec<String> = items.iter().map(word).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// # Errors
/// The effects did not come in this order, or did not come at all.
pub async fn order(stage: &Stage, expected: &Order) -> Result<()> {
    let deadline = Instant::now() + expected.within;
    loop {
        // The watch may be a moment behind what the step before has read.
        let why = disorder(&expected.order, &stage.observer.seen.lock().effects);
        let Some(why) = why else { return Ok(()) };
        if Instant::now() >= deadline {
            bail!("{why}");
        }
        sleep(PAUSE).await;
    }
}

/// The first line that is not there, or not after the one before it.
fn disorder(lines: &[String], effects: &[Effect]) -> Option<String> {
    let mut before: Option<(&str, usize)> = None;
    for line in lines {
        let positions: Vec<usize> = effects
            .iter()
            .enumerate()
            .filter(|(_, effect)| line_is(line, effect))
            .map(|(position, _)| position)
            .collect();
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
            return Some(format!("\"{line}\" did not happen"));
        };
        if let Some((earlier, end)) = before.filter(|(_, end)| end >= first) {
            return Some(format!(
                "all \"{earlier}\" should come before all \"{line}\", but effect {} came after effect {}",
                end + 1,
                first + 1
            ));
        }
        before = Some((line, *last));
    }
    None
}

/// `web-a* gone` is each `gone` of a pod whose name starts with `web-a`.
fn line_is(line: &str, effect: &Effect) -> bool {
    let Some((object, what)) = line.split_once(' ') else { return false };
    let named = match object.strip_suffix('*') {
        Some(prefix) => effect.object.short.starts_with(prefix),
        None => effect.object.short == object,
    };
    named && effect.what == what
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::names::Name;

    fn effects(lines: &[&str]) -> Vec<Effect> {
        let effect = |line: &&str| {
            let (object, what) = line.split_once(' ').unwrap();
            let object = Name { short: object.to_owned(), family: object.to_owned() };
            Effect { object, what: what.to_owned(), at: Instant::now(), version: 0 }
        };
        lines.iter().map(effect).collect()
    }

    #[test]
    fn all_of_a_line_come_before_all_of_the_next() {
        let seen = effects(&["web-a1 gone", "db-0 ready", "web-a2 gone", "web-b1 created"]);
        let disorder =
            |lines: &[&str]| disorder(&lines.iter().map(ToString::to_string).collect::<Vec<_>>(), &seen);
        assert_eq!(disorder(&["web-a* gone", "web-b* created"]), None);
        assert!(disorder(&["web-a* gone", "db-0 ready"]).unwrap().contains("should come before"));
        assert!(disorder(&["db-1 ready"]).unwrap().contains("did not happen"));
    }
}
