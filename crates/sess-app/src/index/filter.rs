//! Which terms a session has: a Bloom filter, small enough to keep one for each.

use sess_readers::{Term, Terms};

/// With as many bits a term and as many probes, one in a hundred terms is believed to be there and is not.
const BITS_PER_TERM: usize = 10;
const PROBES: u64 = 7;

/// Returns the filter of these terms.
pub(super) fn of(terms: &Terms) -> Vec<u8> {
    let mut filter = vec![0; (terms.len() * BITS_PER_TERM).div_ceil(8).max(1)];
    for term in terms.iter() {
        for bit in bits(term, filter.len()) {
            filter[bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// The filter of a session that may have any term.
pub(super) const ANY: &[u8] = &[];

/// Tells whether a session may have all of these terms.
pub(super) fn may_have(filter: &[u8], terms: &[Term]) -> bool {
    let has = |bit: usize| filter[bit / 8] & 1 << (bit % 8) != 0;
    filter == ANY || terms.iter().all(|term| bits(*term, filter.len()).all(has))
}

fn bits(term: Term, size_bytes: usize) -> impl Iterator<Item = usize> {
    let (first, step) = (term & 0xffff_ffff, term >> 32 | 1);
    let all = size_bytes as u64 * 8;
    (0..PROBES).map(move |probe| usize::try_from((first + probe * step) % all).expect("less than the size"))
}
