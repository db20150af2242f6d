//! Items grouped by a small number, such as the number of a procedure, all in one vector. The items
//! are counted first, so that nothing is sorted and no vector grows.

/// Items grouped by number. The items of a group keep the order in which they came.
pub(crate) struct Grouped<T> {
    /// For each number the index of its first item; at the end the number of all items.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Grouped<T> {
    /// Groups items by their numbers, which are below `count`. `pairs` is called twice and must
    /// yield the same pairs.
    pub fn new<I: Iterator<Item = (u32, T)>>(count: usize, pairs: impl Fn() -> I) -> Self {
        // While the items are distributed, the start of a group is one entry further on.
        let mut starts = vec![0u32; count + 2];
        for (number, _) in pairs() {
            starts[number as usize + 2] += 1;
        }
        for i in 2..starts.len() {
            starts[i] += starts[i - 1];
        }
        let any = pairs().next().map(|(_, item)| item);
        let mut items = any.map_or_else(Vec::new, |any| vec![any; starts[count + 1] as usize]);
        for (number, item) in pairs() {
            let place = &mut starts[number as usize + 1];
            items[*place as usize] = item;
            *place += 1;
        }
        starts.pop();
        Self { starts, items }
    }

    /// The items of a number.
    pub fn of(&self, number: usize) -> &[T] {
        &self.items[self.starts[number] as usize..self.starts[number + 1] as usize]
    }

    /// The items of each number, in the order of numbers.
    pub fn groups(&self) -> impl Iterator<Item = &[T]> {
        (0..self.starts.len() - 1).map(|number| self.of(number))
    }
}

#[cfg(test)]
mod tests {
    use super::Grouped;

    #[test]
    fn items_are_grouped_in_order() {
        let pairs = [(2, 'a'), (0, 'b'), (2, 'c'), (3, 'd'), (2, 'e')];
        let grouped = Grouped::new(5, || pairs.into_iter());
        let all: Vec<String> = grouped.groups().map(|g| g.iter().collect()).collect();
        assert_eq!(all, ["b", "", "ace", "d", ""]);
        assert_eq!(grouped.of(2), ['a', 'c', 'e']);
        assert_eq!(Grouped::<u8>::new(0, std::iter::empty).groups().count(), 0);
    }
}
