//! Questions to the person while a turn runs: may a tool act, and what an agent wants to know.

use console::Style;
use serde_json::{Map, Value};
use sess_app::agents::{Answer, Permission, Place, Question};
use sess_core::turn::Call;

use super::{
    Asked, Terminal, calls,
    editor::{Prompt, Typed},
    markdown::Markdown,
};
use crate::output::{one_line, visible};

const REFUSED: &str = "refused by the person";
const DECLINE: &str = "/decline";

/// The answers to a question of few words: the key, and what it means.
pub async fn choose(asked: &Asked<'_>, choices: &[(char, &str)]) -> Option<char> {
    let bold = Style::new().bold();
    let shown = choices.iter().map(|(key, what)| format!("{} {what}", bold.apply_to(format!("[{key}]"))));
    asked.say(&shown.collect::<Vec<_>>().join("  "));
    loop {
        let Typed::Line(line) = asked.read(Prompt::new("? ", &Style::new().yellow())).await else {
            return None;
        };
        // The letter alone, or the whole word: what only begins like a yes is none.
        let typed = line.trim().to_lowercase();
        let is_meant = |key: char, what: &str| {
            let word = what.split_whitespace().next().unwrap_or_default();
            typed == key.to_string() || typed == word || typed == what
        };
        if let Some((key, _)) = choices.iter().find(|(key, what)| is_meant(*key, what)) {
            return Some(*key);
        }
        let keys: Vec<String> = choices.iter().map(|(key, _)| key.to_string()).collect();
        asked.say(&Style::new().dim().apply_to(format!("one of {}", keys.join(", "))).to_string());
    }
}

pub async fn permit(terminal: &Terminal, place: &Place, call: &Call) -> Permission {
    terminal.screen().gap();
    let asked = terminal.ask().await;
    asked.forget_typed();
    let bold = Style::new().bold();
    let name = one_line(&call.name);
    let head = format!("{} wants to use {}", bold.apply_to(&place.agent), bold.yellow().apply_to(&name));
    asked.say(&format!("{} {head}", Style::new().yellow().apply_to("▲")));
    for row in calls::full(&call.name, &call.arguments) {
        asked.say(&format!("  {row}"));
    }
    let always = format!("always {name}");
    let choices =
        [('y', "once"), ('a', always.as_str()), ('n', "no"), ('e', "no, and say what to do instead")];
    let permission = match choose(&asked, &choices).await {
        Some('y') => Permission::Once,
        Some('a') => Permission::Always,
        Some('e') => match asked.read(Prompt::new("instead: ", &Style::new().yellow())).await {
            Typed::Line(text) if text.trim().is_empty() => Permission::No(REFUSED.to_owned()),
            Typed::Line(text) => Permission::No(format!("{REFUSED}, who says: {}", text.trim())),
            Typed::Interrupted | Typed::Ended => {
                terminal.stop_turn();
                Permission::No(REFUSED.to_owned())
            }
        },
        Some(_) => Permission::No(REFUSED.to_owned()),
        None => {
            terminal.stop_turn();
            Permission::No(REFUSED.to_owned())
        }
    };
    asked.answered();
    permission
}

/// Asks by the schema, field by field.
pub async fn answer(terminal: &Terminal, place: &Place, question: &Question) -> Answer {
    terminal.screen().gap();
    let asked = terminal.ask().await;
    let bold = Style::new().bold();
    let title = question.title.as_deref().map(one_line).unwrap_or_else(|| "asks".to_owned());
    let who = bold.apply_to(&place.agent);
    asked.say(&format!("{} {who} · {}", Style::new().cyan().apply_to("◇"), bold.apply_to(title)));
    let mut message = Markdown::default();
    let width = terminal.width().saturating_sub(2);
    let mut rows = message.push(&question.message, width);
    rows.extend(message.finish(width));
    rows.iter().for_each(|row| asked.say(&format!("  {row}")));
    asked
        .say(&Style::new().dim().apply_to(format!("Esc or {DECLINE} if you do not want to say")).to_string());
    let answer = match fields(question.schema.as_ref()) {
        Fields::One(field) => field.ask(&asked).await.map(Option::unwrap_or_default),
        Fields::Several(fields) => several(&asked, &fields).await,
    };
    asked.answered();
    answer.map_or(Answer::Declined, Answer::Given)
}

async fn several(asked: &Asked<'_>, fields: &[Field]) -> Option<Value> {
    let mut given = Map::new();
    for field in fields {
        if let Some(value) = field.ask(asked).await? {
            given.insert(field.name.clone(), value);
        }
    }
    Some(Value::Object(given))
}

enum Fields {
    One(Field),
    Several(Vec<Field>),
}

/// One thing to ask for.
struct Field {
    name: String,
    about: String,
    kind: Kind,
    is_required: bool,
    default: Option<Value>,
}

enum Kind {
    Text,
    Choice(Vec<Value>),
    Truth,
    Number {
        is_whole: bool,
        least: Option<f64>,
        most: Option<f64>,
    },
    /// A list or an object: nobody is asked to fill in a form for that.
    Json,
}

fn fields(schema: Option<&Value>) -> Fields {
    let Some(schema) = schema else { return Fields::One(Field::new("answer", &Value::Null, true)) };
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty())
    else {
        return Fields::One(Field::new("answer", schema, true));
    };
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_required = |name: &str| required.iter().any(|other| other.as_str() == Some(name));
    Fields::Several(
        properties.iter().map(|(name, schema)| Field::new(name, schema, is_required(name))).collect(),
    )
}

impl Field {
    fn new(name: &str, schema: &Value, is_required: bool) -> Self {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        // `["string", "null"]` is a text that may be left out.
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(kind)) => vec![kind],
            _ => Vec::new(),
        };
        let kind = kinds.iter().find(|kind| **kind != "null").copied();
        let choices = schema.get("enum").and_then(Value::as_array).filter(|choices| !choices.is_empty());
        let kind = match (choices, kind) {
            (Some(choices), _) => Kind::Choice(choices.clone()),
            (None, Some("boolean")) => Kind::Truth,
            (None, Some(kind @ ("number" | "integer"))) => Kind::Number {
                is_whole: kind == "integer",
                least: number("minimum"),
                most: number("maximum"),
            },
            (None, Some("array" | "object")) => Kind::Json,
            (None, _) => Kind::Text,
        };
        Self {
            name: name.to_owned(),
            about: text("description").or_else(|| text("title")).unwrap_or_default().to_owned(),
            kind,
            is_required,
            default: schema.get("default").cloned(),
        }
    }

    /// Returns what was said, if anything; `None` is declined.
    async fn ask(&self, asked: &Asked<'_>) -> Option<Option<Value>> {
        let dim = Style::new().dim();
        if let Kind::Choice(choices) = &self.kind {
            for (n, choice) in choices.iter().enumerate() {
                asked.say(&format!(
                    "  {} {}",
                    Style::new().cyan().apply_to(format!("{}.", n + 1)),
                    shown(choice)
                ));
            }
        }
        let mut hints: Vec<String> = Vec::new();
        if !self.about.is_empty() {
            hints.push(one_line(&self.about));
        }
        match &self.kind {
            Kind::Choice(choices) => hints.push(format!("1 to {}", choices.len())),
            Kind::Truth => hints.push("y or n".to_owned()),
            Kind::Number { is_whole, .. } => {
                hints.push(if *is_whole { "a whole number" } else { "a number" }.to_owned());
            }
            Kind::Json => hints.push("as JSON".to_owned()),
            Kind::Text => {}
        }
        match &self.default {
            Some(default) => hints.push(format!("Enter for {}", shown(default))),
            None if !self.is_required => hints.push("Enter leaves it out".to_owned()),
            None => {}
        }
        if !hints.is_empty() {
            asked.say(&format!("  {}", dim.apply_to(hints.join(" · "))));
        }
        loop {
            let prompt = Prompt::new(&format!("{}: ", one_line(&self.name)), &Style::new().cyan());
            let Typed::Line(line) = asked.read(prompt).await else { return None };
            let line = line.trim();
            if line == DECLINE {
                return None;
            }
            if line.is_empty() && (self.default.is_some() || !self.is_required) {
                return Some(self.default.clone());
            }
            match self.kind.read(line) {
                Ok(value) => return Some(Some(value)),
                Err(problem) => asked.say(&format!("  {}", Style::new().red().apply_to(problem))),
            }
        }
    }
}

impl Kind {
    fn read(&self, line: &str) -> Result<Value, String> {
        if line.is_empty() {
            return Err("an answer is needed".to_owned());
        }
        match self {
            Self::Text => Ok(line.into()),
            Self::Choice(choices) => {
                let by_number = line.parse::<usize>().ok().and_then(|n| choices.get(n.checked_sub(1)?));
                let by_name = || choices.iter().find(|choice| shown(choice).eq_ignore_ascii_case(line));
                let found = by_number.or_else(by_name).cloned();
                found.ok_or_else(|| format!("one of 1 to {}", choices.len()))
            }
            Self::Truth => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("y or n".to_owned()),
            },
            Self::Number { is_whole, least, most } => {
                let value: Value = match line.parse::<i64>() {
                    Ok(whole) => whole.into(),
                    Err(_) if *is_whole => return Err("that is not a whole number".to_owned()),
                    Err(_) => {
                        let number = line.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                        number.ok_or("that is not a number")?.into()
                    }
                };
                let number = value.as_f64().unwrap_or_default();
                if let Some(least) = least.filter(|least| number < *least) {
                    return Err(format!("at least {least}"));
                }
                if let Some(most) = most.filter(|most| number > *most) {
                    return Err(format!("at most {most}"));
                }
                Ok(value)
            }
            Self::Json => serde_json::from_str(line).map_err(|error| format!("that is not JSON: {error}")),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        value => visible(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, line: &str, expected: Result<Value, &str>) {
        let read = Field::new("f", schema, true).kind.read(line);
        assert_eq!(read, expected.map_err(str::to_owned), "{schema} {line:?}");
    }

    #[test]
    fn answers_are_read_as_the_schema_wants_them() {
        let choice = json!({ "enum": ["red", "blue", 7] });
        check(&choice, "2", Ok(json!("blue")));
        check(&choice, "Red", Ok(json!("red")));
        check(&choice, "7", Ok(json!(7)));
        check(&choice, "0", Err("one of 1 to 3"));
        check(&json!({ "type": "boolean" }), "Yes", Ok(json!(true)));
        check(&json!({ "type": "boolean" }), "maybe", Err("y or n"));
        let port = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
        check(&port, "5", Ok(json!(5)));
        check(&port, "5.5", Err("that is not a whole number"));
        check(&port, "10", Err("at most 9"));
        check(&json!({ "type": ["number", "null"] }), "2.5", Ok(json!(2.5)));
        check(&json!({ "type": "number" }), "NaN", Err("that is not a number"));
        check(&json!({ "type": "string" }), "x", Ok(json!("x")));
        check(&json!(null), "free", Ok(json!("free")));
        check(&json!({ "type": "array" }), "[1]", Ok(json!([1])));
    }
}
