//! A number for each slot, of which those from some number on are wanted.

/// Slots are looked at in blocks, and blocks in which no number was ever so large are passed over.
#[derive(Debug)]
pub struct Stamps<T> {
    of_slots: Vec<T>,
    most_of_blocks: Vec<T>,
}

const BLOCK: usize = 64;

impl<T> Default for Stamps<T> {
    fn default() -> Self {
        Self { of_slots: Vec::new(), most_of_blocks: Vec::new() }
    }
}

impl<T: Copy + Ord + Default> Stamps<T> {
    pub fn set(&mut self, slot: u32, stamp: T) {
        let slot = slot as usize;
        if self.of_slots.len() <= slot {
            self.of_slots.resize(slot + 1, T::default());
            self.most_of_blocks.resize(slot / BLOCK + 1, T::default());
        }
        self.of_slots[slot] = stamp;
        let most = &mut self.most_of_blocks[slot / BLOCK];
        *most = stamp.max(*most);
    }

    /// The slots whose number is at least this one.
    pub fn at_least(&self, stamp: T) -> impl Iterator<Item = u32> {
        let blocks = self.of_slots.chunks(BLOCK).zip(&self.most_of_blocks).enumerate();
        let blocks = blocks.filter(move |(_, (_, most))| **most >= stamp);
        let slots = blocks
            .flat_map(|(block, (stamps, _))| (block * BLOCK..).zip(stamps))
            .filter(move |it| *it.1 >= stamp);
        slots.map(|(slot, _)| u32::try_from(slot).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn those_that_are_wanted_are_found(set in prop::collection::vec((0_u32..300, 0_i64..50), 0..400), least in 0_i64..60) {
            let (mut stamps, mut plain) = (Stamps::default(), std::collections::BTreeMap::new());
            for (slot, stamp) in set {
                stamps.set(slot, stamp);
                plain.insert(slot, stamp);
            }
            let known = plain.keys().last().map_or(0, |last| last + 1);
            let of = |slot: &u32| plain.get(slot).copied().unwrap_or(0);
            let wanted: Vec<u32> = (0..known).filter(|slot| of(slot) >= least).collect();
            prop_assert_eq!(stamps.at_least(least).collect::<Vec<_>>(), wanted);
        }
    }
}
