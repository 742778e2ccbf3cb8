//! What a confined agent may reach. A child is never freer than its parent.

/// What the tools of a confined agent may reach beside their workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub network: Network,
    /// Directories that may be written besides the workspace.
    pub write: Vec<String>,
    /// Directories that may be read besides the workspace and the system's own.
    pub read: Vec<String>,
    pub session_tools: SessionTools,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    #[default]
    None,
    Allowed,
}

/// `sessionToolsVisibility`: which sessions a confined agent sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionTools {
    /// Its own and what it spawned.
    #[default]
    Spawned,
    All,
}

impl Sandbox {
    /// Returns what a child may reach: only what both allow.
    ///
    /// A path is allowed by both when one list has it and the other has it or a
    /// directory above.
    pub fn meet(&self, child: &Self) -> Self {
        Self {
            network: self.network.min(child.network),
            write: within(&self.write, &child.write),
            read: within(
                &[&self.read[..], &self.write[..]].concat(),
                &[&child.read[..], &child.write[..]].concat(),
            ),
            session_tools: self.session_tools.min(child.session_tools),
        }
    }
}

/// Returns the confinement of a child: what the parent has, what the child asks for, or both.
pub fn inherited(parent: Option<&Sandbox>, child: Option<&Sandbox>) -> Option<Sandbox> {
    match (parent, child) {
        (Some(parent), Some(child)) => Some(parent.meet(child)),
        (Some(only), None) | (None, Some(only)) => Some(only.clone()),
        (None, None) => None,
    }
}

fn within(one: &[String], other: &[String]) -> Vec<String> {
    let mut both: Vec<String> = Vec::new();
    let mut add = |paths: &[String], above: &[String]| {
        for path in paths {
            if above.iter().any(|dir| is_below(path, dir)) && !both.contains(path) {
                both.push(path.clone());
            }
        }
    };
    add(one, other);
    add(other, one);
    both.sort();
    both
}

/// Tells whether `path` is `dir` or below it. Both are absolute and have no `..`; others match nothing.
pub fn is_below(path: &str, dir: &str) -> bool {
    let is_plain = |path: &str| path.starts_with('/') && !path.split('/').any(|part| part == "..");
    let (path, dir) = (path.trim_end_matches('/'), dir.trim_end_matches('/'));
    let starts = path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    starts && is_plain(&format!("{path}/")) && is_plain(&format!("{dir}/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths() -> impl Strategy<Value = Vec<String>> {
        let path =
            prop::sample::select(vec!["/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "/a/../b", "relative"]);
        prop::collection::vec(path.prop_map(str::to_owned), 0..4)
    }

    fn sandboxes() -> impl Strategy<Value = Sandbox> {
        (any::<bool>(), paths(), paths(), any::<bool>()).prop_map(|(network, write, read, all)| Sandbox {
            network: if network { Network::Allowed } else { Network::None },
            write,
            read,
            session_tools: if all { SessionTools::All } else { SessionTools::Spawned },
        })
    }

    fn reaches(list: &[String], path: &str) -> bool {
        list.iter().any(|dir| is_below(path, dir))
    }

    /// `one` allows nothing that `other` does not.
    fn is_within(one: &Sandbox, other: &Sandbox) -> bool {
        let may_read =
            |sandbox: &Sandbox, path: &str| reaches(&sandbox.read, path) || reaches(&sandbox.write, path);
        one.network <= other.network
            && one.session_tools <= other.session_tools
            && one.write.iter().all(|path| !is_below(path, path) || reaches(&other.write, path))
            && one.read.iter().all(|path| !is_below(path, path) || may_read(other, path))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// T10: however deep the chain of spawns, nobody is freer than anybody above.
        #[test]
        fn a_child_is_never_freer_than_its_parent(chain in prop::collection::vec(sandboxes(), 2..6)) {
            let mut reached = chain[0].clone();
            for child in &chain[1..] {
                let next = reached.meet(child);
                prop_assert!(is_within(&next, &reached), "{next:?} within {reached:?}");
                prop_assert!(is_within(&next, child), "{next:?} within {child:?}");
                reached = next;
            }
        }

        #[test]
        fn what_both_allow_is_allowed(one in sandboxes(), other in sandboxes(), path in paths()) {
            let both = one.meet(&other);
            for path in path {
                prop_assert_eq!(
                    reaches(&both.write, &path),
                    reaches(&one.write, &path) && reaches(&other.write, &path)
                );
            }
            prop_assert_eq!(&both, &other.meet(&one));
        }
    }

    #[test]
    fn who_asks_for_no_sandbox_gets_the_parents() {
        let confined = Sandbox::default();
        assert_eq!(inherited(Some(&confined), None), Some(confined.clone()));
        assert_eq!(inherited(None, Some(&confined)), Some(confined));
        assert_eq!(inherited(None, None), None);
    }
}
