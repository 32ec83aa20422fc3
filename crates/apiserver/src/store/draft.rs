//! The text of an object that is to be stored, without the revision that it will get.

/// Written field by field; the store puts the revision in.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    text: String,
    revision_at: Option<usize>,
}

impl Draft {
    /// An object begins: the whole one, or the value of a field.
    pub(crate) fn open(&mut self) {
        self.text.push('{');
    }

    pub(crate) fn close(&mut self) {
        self.text.push('}');
    }

    /// The name of a field, which needs no escaping; its value follows.
    pub(crate) fn field(&mut self, name: &str) {
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
    }

    /// A value, as JSON.
    pub(crate) fn value(&mut self, json: &str) {
        self.text.push_str(json);
    }

    pub(crate) fn revision_here(&mut self) {
        self.revision_at = Some(self.text.len());
    }

    /// The text at a revision; `None` if there is no place for it.
    pub(super) fn at(&self, revision: u64) -> Option<String> {
        let (before, after) = self.text.split_at(self.revision_at?);
        let revision = format!("\"{revision}\"");
        Some([before, &revision, after].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_goes_where_it_was_asked_for() {
        let mut draft = Draft::default();
        draft.open();
        draft.field("metadata");
        draft.open();
        draft.field("name");
        draft.value("\"{\"");
        draft.field("resourceVersion");
        draft.revision_here();
        draft.field("uid");
        draft.value("\"u\"");
        draft.close();
        draft.field("status");
        draft.value("{}");
        draft.close();
        let text = r#"{"metadata":{"name":"{","resourceVersion":"7","uid":"u"},"status":{}}"#;
        assert_eq!(draft.at(7).as_deref(), Some(text));
        assert_eq!(Draft::default().at(7), None);
    }
}
