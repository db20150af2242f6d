//! Putting together what threads made in pieces.
//!
//! A stage that works on procedures in parallel ends with a vector for each.
//! To copy them into one costs mostly the first touch of new memory, which is
//! worth more than one thread too.

use rayon::prelude::*;

/// All parts one after the other. Each is freed as soon as it is copied.
pub(crate) fn concat<T: Copy + Send>(parts: Vec<Vec<T>>) -> Vec<T> {
    concat_with(parts, |_, item| item)
}

/// The same, with each item changed on the way; the function also gets the
/// number of the item's part.
pub(crate) fn concat_with<T: Copy + Send>(
    parts: Vec<Vec<T>>,
    change: impl Fn(usize, T) -> T + Sync,
) -> Vec<T> {
    let total = parts.iter().map(Vec::len).sum();
    let mut all = Vec::with_capacity(total);
    let mut rest = &mut all.spare_capacity_mut()[..total];
    let mut places = Vec::with_capacity(parts.len());
    for part in &parts {
        let (place, others) = rest.split_at_mut(part.len());
        places.push(place);
        rest = others;
    }
    places
        .into_par_iter()
        .zip(parts)
        .enumerate()
        .with_min_len(16)
        .for_each(|(number, (place, part))| {
            for (place, item) in place.iter_mut().zip(&part) {
                place.write(change(number, *item));
            }
        });
    // SAFETY: the places cover the first `total` items without a gap, and each is as long as
    // the part that was written to it.
    unsafe { all.set_len(total) };
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_order() {
        let parts: Vec<Vec<u32>> = (0..100u32).map(|n| (0..n % 7).collect()).collect();
        let expected: Vec<u32> = parts.iter().flatten().copied().collect();
        assert_eq!(concat(parts.clone()), expected);
        let numbered = concat_with(parts.clone(), |part, item| part as u32 * 10 + item);
        let items = parts
            .iter()
            .enumerate()
            .flat_map(|(n, p)| p.iter().map(move |i| n as u32 * 10 + i));
        assert!(numbered.into_iter().eq(items));
        assert!(concat::<u8>(Vec::new()).is_empty());
    }
}
