//! What is known of pods, by their slots.

/// Slots are numbered without gaps, so that looking at pods one after the other goes through memory one after the other.
#[derive(Debug)]
pub struct Slots<T>(Vec<Option<T>>);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Slots<T> {
    /// How many slots there are, empty ones too.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        self.0.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.0.get_mut(slot as usize)?.as_mut()
    }

    pub fn insert(&mut self, slot: u32, value: T) {
        let index = slot as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(value);
    }

    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.0.get_mut(slot as usize)?.take()
    }
}
