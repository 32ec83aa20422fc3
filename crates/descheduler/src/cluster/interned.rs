//! Values that many objects share are kept once, as long as somebody uses them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Values by number. A number is given again after its value is gone, which its generation tells.
#[derive(Debug)]
pub struct Interned<T> {
    numbers: HashMap<Arc<T>, u32, RandomState>,
    slots: Vec<Option<Shared<T>>>,
    free: Vec<u32>,
    generation: u64,
}

#[derive(Debug)]
struct Shared<T> {
    value: Arc<T>,
    users: u32,
    generation: u64,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), slots: Vec::new(), free: Vec::new(), generation: 0 }
    }
}

impl<T: Eq + Hash> Interned<T> {
    /// The number of the value, for one more user. The flag says whether it is new.
    pub fn acquire(&mut self, value: T) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&value) {
            if let Some(Some(shared)) = self.slots.get_mut(*number as usize) {
                shared.users += 1;
            }
            return (*number, false);
        }
        let value = Arc::new(value);
        self.generation += 1;
        let shared = Some(Shared { value: value.clone(), users: 1, generation: self.generation });
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = shared;
                number
            }
            None => {
                self.slots.push(shared);
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.numbers.insert(value, number);
        (number, true)
    }

    /// One user less. Gives the value back if that was the last.
    pub fn release(&mut self, number: u32) -> Option<Arc<T>> {
        let slot = self.slots.get_mut(number as usize)?;
        let shared = slot.as_mut()?;
        shared.users -= 1;
        if shared.users > 0 {
            return None;
        }
        let value = slot.take()?.value;
        self.numbers.remove(&value);
        self.free.push(number);
        Some(value)
    }

    pub fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.slots.get(number as usize)?.as_ref().map(|shared| &shared.value)
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn generation(&self, number: u32) -> u64 {
        let shared = self.slots.get(number as usize).and_then(Option::as_ref);
        shared.map_or(0, |shared| shared.generation)
    }
}
