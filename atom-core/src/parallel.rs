//! Joining the vectors that threads made in pieces.
//!
//! A stage that works on procedures in parallel ends with a vector for each.
//! Copying all of them into one costs mostly the first touch of new memory, which is worth more
//! than one thread too.

use rayon::prelude::*;

/// Largest number of procedures that one thread takes at once. By default the library hands out up
/// to a quarter of all procedures, and the threads that are done with the rest then wait.
pub(crate) const AT_ONCE: usize = 128;

/// All parts one after the other. Each part is freed as soon as it is copied.
pub(crate) fn concat<T: Copy + Send>(parts: Vec<Vec<T>>) -> Vec<T> {
    concat_with(parts, |_, item| item)
}

/// All parts one after the other, with each item converted. The function gets the number of the
/// item's part and the item.
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

/// A vector in pieces of the given lengths, each filled by one thread. `work` gets the number of
/// its piece and the items of it, all of which are `value`. The results of `work` come in the order
/// of the pieces. `init` makes storage that a thread uses for one piece after the other.
pub(crate) fn in_pieces<T, R, S>(
    value: T,
    lengths: impl Iterator<Item = usize> + Clone,
    init: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, usize, &mut [T]) -> R + Sync + Send,
) -> (Vec<T>, Vec<R>)
where
    T: Copy + Send + Sync,
    R: Send,
{
    let total = lengths.clone().sum();
    let mut all = Vec::with_capacity(total);
    let mut rest = &mut all.spare_capacity_mut()[..total];
    let mut places = Vec::new();
    for length in lengths {
        let (place, others) = rest.split_at_mut(length);
        places.push(place);
        rest = others;
    }
    let made = places
        .into_par_iter()
        .enumerate()
        .with_min_len(16)
        .map_init(init, |storage, (number, place)| {
            for item in &mut *place {
                item.write(value);
            }
            let place = std::ptr::from_mut(place) as *mut [T];
            // SAFETY: all items have just been written, and no other thread has this piece.
            work(storage, number, unsafe { &mut *place })
        })
        .collect();
    // SAFETY: the places cover the first `total` items without a gap, and each was written.
    unsafe { all.set_len(total) };
    (all, made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled() {
        let lengths = (0..200usize).map(|n| n * 7 % 11);
        let (all, sums) = in_pieces(1u64, lengths.clone(), Vec::<usize>::new, |seen, n, own| {
            seen.push(n);
            own.iter_mut().for_each(|item| *item += n as u64);
            (n, own.len())
        });
        let expected = lengths.clone().enumerate();
        let expected = expected.flat_map(|(n, l)| std::iter::repeat_n(1 + n as u64, l));
        assert!(all.into_iter().eq(expected));
        assert!(sums.into_iter().eq(lengths.enumerate()));
    }

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
