//! Labels and field values repeat across objects; each text is kept once.

use std::collections::HashSet;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Interner {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Interner {
    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_at {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.texts.len() * 2).max(1024);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_is_kept_once_and_unused_texts_are_swept() {
        let mut interner = Interner::default();
        let kept = interner.intern("app");
        assert!(Arc::ptr_eq(&kept, &interner.intern("app")));
        for i in 0..5000 {
            interner.intern(&format!("gone-{i}"));
        }
        assert!(interner.texts.len() < 4096, "{} texts held", interner.texts.len());
        assert!(Arc::ptr_eq(&kept, &interner.intern("app")));
    }
}
