//! May this tool act? Rules from the configuration, and what holds without one.

use serde_json::{Map, Value};

/// `permissions:`; a call is refused by `deny`, else asked about by `ask`, else allowed by `allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    pub allow: Vec<Rule>,
    pub ask: Vec<Rule>,
    pub deny: Vec<Rule>,
    /// Tools that the person has allowed for good, when they were asked.
    pub always: Vec<String>,
}

/// `tool`, or `tool:argument=pattern`; `*` stands for any text in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    text: String,
    tool: String,
    arguments: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no rule: expected a tool's name, or name:argument=pattern")]
pub struct InvalidRule(pub String);

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Ask,
    /// Refused, by this rule.
    Deny(String),
}

/// What is known about a tool before it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only reads: may run beside others, and is not asked about.
    Harmless,
    /// Changes what belongs to the session: one at a time, and not asked about.
    Own,
    /// Changes the world: one at a time, and asked about.
    World,
}

/// What the person said once for the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    #[default]
    Ask,
    /// `--yolo`: whatever no rule denies.
    All,
}

/// Characters that make a shell do more than one thing. An `allow` rule's `*` stops at them, so that
/// `shell:cmd=ls*` does not allow `ls; rm -rf ~`.
const SHELL_JOINTS: &[char] = &[';', '&', '|', '\n', '\r', '`', '$', '>', '<', '(', ')'];

impl Permissions {
    pub fn decide(&self, trust: Trust, tool: &str, reach: Reach, arguments: &Map<String, Value>) -> Decision {
        let matching = |rules: &[Rule], breadth| {
            rules.iter().find(|rule| rule.matches(tool, arguments, breadth)).map(|rule| rule.text.clone())
        };
        if let Some(rule) = matching(&self.deny, Breadth::Wide) {
            return Decision::Deny(rule);
        }
        if trust == Trust::All || self.always.iter().any(|allowed| allowed == tool) {
            return Decision::Allow;
        }
        if matching(&self.ask, Breadth::Wide).is_some() {
            return Decision::Ask;
        }
        let is_allowed = reach != Reach::World || matching(&self.allow, Breadth::Narrow).is_some();
        if is_allowed { Decision::Allow } else { Decision::Ask }
    }
}

/// How much a `*` may stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breadth {
    Wide,
    /// Not across a joint of a shell command.
    Narrow,
}

impl Rule {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tool, or the pattern of several.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The names of the arguments that it looks at.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|(name, _)| name.as_str())
    }

    fn matches(&self, tool: &str, arguments: &Map<String, Value>, breadth: Breadth) -> bool {
        glob(&self.tool, tool, Breadth::Wide)
            && self.arguments.iter().all(|(name, pattern)| {
                let value = match arguments.get(name) {
                    None => return false,
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                };
                let breadth = if tool == "shell" { breadth } else { Breadth::Wide };
                glob(pattern, &value, breadth)
            })
    }
}

impl std::str::FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidRule(text.to_owned());
        let mut parts = text.split(':');
        let tool = parts.next().unwrap_or_default().trim().to_owned();
        if tool.is_empty() {
            return Err(invalid());
        }
        // A pattern may hold colons of its own: only `name=` begins the next argument.
        let mut arguments: Vec<(String, String)> = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some((name, pattern)) if is_name(name) => {
                    arguments.push((name.to_owned(), pattern.to_owned()));
                }
                _ => {
                    let (_, pattern) = arguments.last_mut().ok_or_else(invalid)?;
                    pattern.push(':');
                    pattern.push_str(part);
                }
            }
        }
        Ok(Self { text: text.to_owned(), tool, arguments })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Matches the whole text; time grows with the product of the lengths, never faster.
fn glob(pattern: &str, text: &str, breadth: Breadth) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, from)) = star
            && !(breadth == Breadth::Narrow && SHELL_JOINTS.contains(&text[from]))
        {
            star = Some((at, from + 1));
            (p, t) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    }

    #[track_caller]
    fn check(permissions: &Permissions, trust: Trust, tool: &str, cmd: &str, expected: &str) {
        let arguments = Map::from_iter([("cmd".to_owned(), Value::from(cmd))]);
        let reach = if tool.starts_with("read") { Reach::Harmless } else { Reach::World };
        let told = match permissions.decide(trust, tool, reach, &arguments) {
            Decision::Allow => "allow".to_owned(),
            Decision::Ask => "ask".to_owned(),
            Decision::Deny(rule) => format!("deny by {rule}"),
        };
        assert_eq!(told, expected, "{tool} {cmd}");
    }

    #[test]
    fn without_rules_reading_is_allowed_and_acting_is_asked() {
        let none = Permissions::default();
        check(&none, Trust::Ask, "read_file", "", "allow");
        check(&none, Trust::Ask, "shell", "ls", "ask");
        check(&none, Trust::All, "shell", "ls", "allow");
    }

    #[test]
    fn deny_comes_before_ask_before_allow() {
        let permissions = Permissions {
            allow: rules(&["shell:cmd=git *", "write_*", "shell:cmd=echo a:b*"]),
            ask: rules(&["shell:cmd=git push*"]),
            deny: rules(&["shell:cmd=*rm -rf*", "read_secret"]),
            always: Vec::new(),
        };
        check(&permissions, Trust::Ask, "shell", "git status", "allow");
        check(&permissions, Trust::Ask, "shell", "git push -f", "ask");
        check(&permissions, Trust::All, "shell", "git push -f", "allow");
        check(&permissions, Trust::All, "shell", "git log; rm -rf /", "deny by shell:cmd=*rm -rf*");
        check(&permissions, Trust::Ask, "read_secret", "", "deny by read_secret");
        check(&permissions, Trust::Ask, "write_file", "", "allow");
        check(&permissions, Trust::Ask, "shell", "echo a:bc", "allow");
        check(&permissions, Trust::Ask, "shell", "echo a", "ask");
        let permissions = Permissions { always: vec!["shell".to_owned()], ..permissions };
        check(&permissions, Trust::Ask, "shell", "git push -f", "allow");
        check(&permissions, Trust::Ask, "shell", "rm -rf /", "deny by shell:cmd=*rm -rf*");
    }

    #[test]
    fn an_allowed_command_does_not_carry_another_one() {
        let permissions = Permissions { allow: rules(&["shell:cmd=ls*"]), ..Permissions::default() };
        check(&permissions, Trust::Ask, "shell", "ls -la src", "allow");
        for joined in
            ["ls; rm x", "ls && rm x", "ls | sh", "ls $(rm x)", "ls `rm x`", "ls\nrm x", "ls > /etc/x"]
        {
            check(&permissions, Trust::Ask, "shell", joined, "ask");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for refused in ["", " ", ":cmd=x", "shell:what"] {
            assert!(refused.parse::<Rule>().is_err(), "{refused}");
        }
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let pattern = "*a".repeat(200);
        assert!(!glob(&pattern, &"a".repeat(100), Breadth::Wide));
        assert!(!glob(&pattern, &format!("{}b", "a".repeat(10_000)), Breadth::Wide));
    }
}
