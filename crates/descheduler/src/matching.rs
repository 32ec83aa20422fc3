//! Which selectors match which shapes, kept as either comes, without trying all of them against each other.

use std::sync::Arc;

use crate::cluster::Map;
use crate::cluster::shape::Shape;
use crate::selector::Selector;

type Namespaces = Box<[Box<str>]>;
/// A namespace, a label and its value.
type LabelOfNamespace = (Box<str>, Box<str>, Box<str>);

/// Selectors of namespaces, and the shapes that they match. Selectors that want a certain label are looked up by it.
#[derive(Debug, Default)]
pub struct Matching {
    selectors: Vec<Matcher>,
    numbers: Map<(Namespaces, Selector), u32>,
    selectors_by_label: Map<LabelOfNamespace, Vec<u32>>,
    other_selectors: Map<Box<str>, Vec<u32>>,
    /// By the generation of the shape, which is never given twice.
    shapes: Map<u64, Matched>,
    shapes_by_label: Map<LabelOfNamespace, Vec<u64>>,
    shapes_of_namespace: Map<Box<str>, Vec<u64>>,
}

#[derive(Debug)]
struct Matcher {
    namespaces: Namespaces,
    selector: Selector,
    shapes: Vec<u64>,
}

#[derive(Debug)]
struct Matched {
    shape: Arc<Shape>,
    selectors: Vec<u32>,
}

impl Matching {
    /// How many shapes are remembered, of which some may be gone.
    pub fn remembered(&self) -> usize {
        self.shapes.len()
    }

    /// The number of a selector.
    pub fn selector(&mut self, namespaces: &[Box<str>], selector: &Selector) -> u32 {
        let key = (Box::from(namespaces), selector.clone());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.selectors.len()).unwrap_or(u32::MAX);
        let mut shapes = Vec::new();
        for namespace in namespaces {
            let candidates = match selector.certain_label() {
                Some((label, value)) => {
                    let label = (namespace.clone(), Box::from(label), Box::from(value));
                    self.selectors_by_label.entry(label.clone()).or_default().push(number);
                    self.shapes_by_label.get(&label)
                }
                None => {
                    self.other_selectors.entry(namespace.clone()).or_default().push(number);
                    self.shapes_of_namespace.get(namespace)
                }
            };
            for generation in candidates.into_iter().flatten() {
                if let Some(matched) = self.shapes.get_mut(generation)
                    && selector.matches(&matched.shape.labels)
                {
                    matched.selectors.push(number);
                    shapes.push(*generation);
                }
            }
        }
        let matcher = Matcher { namespaces: namespaces.into(), selector: selector.clone(), shapes };
        self.selectors.push(matcher);
        self.numbers.insert(key, number);
        number
    }

    /// The selectors that match a shape.
    pub fn of_shape(&mut self, generation: u64, shape: &Arc<Shape>) -> &[u32] {
        if !self.shapes.contains_key(&generation) {
            let selectors = self.observe(generation, shape);
            self.shapes.insert(generation, Matched { shape: shape.clone(), selectors });
        }
        self.shapes.get(&generation).map_or(&[], |matched| &matched.selectors)
    }

    /// The shapes that a selector matches, by generation.
    pub fn shapes_of(&self, selector: u32) -> &[u64] {
        self.selectors.get(selector as usize).map_or(&[], |matcher| &matcher.shapes)
    }

    fn observe(&mut self, generation: u64, shape: &Arc<Shape>) -> Vec<u32> {
        let namespace: Box<str> = shape.namespace.as_ref().into();
        let mut matching = Vec::new();
        let mut try_all = |candidates: &[u32], selectors: &mut Vec<Matcher>| {
            for number in candidates {
                let matcher = &mut selectors[*number as usize];
                if matcher.namespaces.contains(&namespace) && matcher.selector.matches(&shape.labels) {
                    matcher.shapes.push(generation);
                    matching.push(*number);
                }
            }
        };
        for (label, value) in shape.labels.iter() {
            let label = (namespace.clone(), Box::from(label), Box::from(value));
            if let Some(candidates) = self.selectors_by_label.get(&label) {
                try_all(candidates, &mut self.selectors);
            }
            self.shapes_by_label.entry(label).or_default().push(generation);
        }
        if let Some(candidates) = self.other_selectors.get(&namespace) {
            try_all(candidates, &mut self.selectors);
        }
        self.shapes_of_namespace.entry(namespace).or_default().push(generation);
        matching
    }
}
