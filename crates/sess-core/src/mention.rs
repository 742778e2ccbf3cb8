//! Naming a few of many things in a sentence.

/// Names the first ones, and how many there are besides.
pub fn first_of(names: &[impl AsRef<str>], most: usize) -> String {
    let shown = names.iter().take(most).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_counted() {
        assert_eq!(first_of(&["a", "b"], 2), "a, b");
        assert_eq!(first_of(&["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(first_of(&[""; 0], 2), "");
    }
}
