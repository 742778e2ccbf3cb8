//! Checks that every relative link in the repository's Markdown leads somewhere, and that no code in a doc comment
//! goes unchecked.
//!
//! Links to other sites are not followed: a check must not depend on the network.

use std::path::Path;

use anyhow::Result;

use crate::files;

/// What a doc comment may show that is no Rust.
const OTHER_LANGUAGES: &[&str] = &["console", "json", "sh", "text", "toml", "yaml"];

/// Returns one sentence per link that leads nowhere, and per example that nothing checks.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for page in files::below(root, "md")? {
        let dir = page.parent().unwrap_or(root);
        for (line, target) in relative_links(&files::read(&page)?) {
            if !dir.join(&target).exists() {
                problems.push(format!("{}:{line}: {target} does not exist", files::shown(root, &page)));
            }
        }
    }
    for source in files::below(root, "rs")? {
        for line in unchecked_examples(&files::read(&source)?) {
            problems.push(format!(
                "{}:{line}: nothing compiles examples in doc comments: write a test, or name the language",
                files::shown(root, &source)
            ));
        }
    }
    Ok(problems)
}

/// Returns the lines at which an example in Rust begins in a doc comment. There are none, so that no step of its own
/// has to compile every crate for them.
fn unchecked_examples(text: &str) -> Vec<usize> {
    let mut is_open = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        let Some(said) = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(language) = said.trim_start().strip_prefix("```") else { continue };
        is_open = !is_open;
        if is_open && !OTHER_LANGUAGES.contains(&language.trim()) {
            found.push(index + 1);
        }
    }
    found
}

/// Returns the line and the path of each relative link, without anchor or title.
fn relative_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark)) {
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => {}
            }
            continue;
        }
        if fence.is_some() {
            continue;
        }
        let prose = without_code(line);
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let definition = prose
            .trim_start()
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        for target in inline.chain(definition) {
            links.extend(relative_path(target).map(|path| (index + 1, path)));
        }
    }
    links
}

/// Returns the line with its `code` cut out: a link shown as an example is none.
fn without_code(line: &str) -> String {
    // An odd number of backticks leaves the last one without a partner.
    line.split('`').step_by(2).collect()
}

fn relative_path(target: &str) -> Option<String> {
    let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
    let path = target.split('#').next()?;
    let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
    (!elsewhere).then(|| path.replace("%20", " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links are written `line path`.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> =
            relative_links(text).iter().map(|(line, path)| format!("{line} {path}")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn examples_in_doc_comments_name_a_language_that_nobody_compiles() {
        let begins = |text: &str| unchecked_examples(text);
        assert_eq!(begins("//! A file:\n//!\n//! ```yaml\n//! a: 1\n//! ```\nfn a() {}\n"), [0; 0]);
        assert_eq!(begins("/// So:\n/// ```\n/// a();\n/// ```\nfn a() {}\n"), [2]);
        assert_eq!(begins("    /// ```rust,no_run\n    /// ```\n    /// ```text\n    /// ```\n"), [1]);
        assert_eq!(begins("// ```\nlet fence = \"```\";\n"), [0; 0]);
    }

    #[test]
    fn relative_links_are_found_in_every_spelling() {
        check("see [a](docs/a.md) and [b](b.md#part)", &["1 docs/a.md", "1 b.md"]);
        check("\n![picture](<a%20b.png> \"title\")", &["2 a b.png"]);
        check("[ref]: ../c.md", &["1 ../c.md"]);
    }

    #[test]
    fn anchors_other_sites_and_code_are_left_alone() {
        check("[a](#part) [b](https://example.org/x) [c](mailto:a@example.org)", &[]);
        check("write `[a](nowhere.md)` like this", &[]);
        check("```\n[a](nowhere.md)\n```\n[b](b.md)", &["4 b.md"]);
        check("~~~\n```\n[a](nowhere.md)\n~~~", &[]);
    }
}
