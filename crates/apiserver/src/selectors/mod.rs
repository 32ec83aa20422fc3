//! Label and field selectors: parsing with the API server's errors, and matching against stored objects.

mod fields;
mod label_text;
mod labels;

pub(crate) use fields::FieldSelector;
pub use labels::LabelSelector;

use crate::store::Object;

/// Both selectors of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.matches(&object.meta) && self.fields.matches(&object.key, &object.meta)
    }
}
