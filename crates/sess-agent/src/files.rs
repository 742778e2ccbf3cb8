//! The toolset `filesystem`: reading and changing files of one workspace, and nothing outside it.
//!
//! Text is UTF-8. A file that is not is shown with `�` for what cannot be read, which is said; it is
//! never edited, because saving it would lose those bytes.

pub mod attachments;
mod beneath;
mod search;
mod text;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sess_core::{agent::FileAccess, permission::Reach};
use tokio_util::sync::CancellationToken;

use self::beneath::{Refusal, Root, refuse};
use crate::{
    confine::Confinement,
    tool::{ToolDef, ToolOutput, Toolbox, capped},
};

/// The largest file that is written or edited.
const WRITE_BYTES_MAX: usize = 10_000_000;

/// Tools on the files of one directory.
pub struct Files {
    root: PathBuf,
    access: FileAccess,
    confinement: Option<Arc<Confinement>>,
}

/// One call, as a confined child is told of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileCall {
    pub root: PathBuf,
    pub is_read_only: bool,
    pub name: String,
    pub arguments: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileAnswer {
    pub text: String,
    pub is_error: bool,
}

impl Files {
    /// With a confinement, each call runs in a confined process of its own.
    pub fn new(root: PathBuf, access: FileAccess, confinement: Option<Arc<Confinement>>) -> Self {
        Self { root, access, confinement }
    }
}

#[async_trait]
impl Toolbox for Files {
    async fn tools(&self) -> Vec<ToolDef> {
        let mut tools = definitions();
        tools.retain(|tool| self.access == FileAccess::ReadWrite || tool.reach == Reach::Harmless);
        tools
    }

    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> ToolOutput {
        let call = FileCall {
            root: self.root.clone(),
            is_read_only: self.access == FileAccess::ReadOnly,
            name: name.to_owned(),
            arguments,
        };
        if let Some(confinement) = &self.confinement {
            return confinement.file_tool(&call, cancel).await;
        }
        let stop = cancel.clone();
        match tokio::task::spawn_blocking(move || perform(call, &|| stop.is_cancelled())).await {
            Ok(answer) => answer,
            Err(error) => ToolOutput::error(format!("the tool broke: {error}")),
        }
    }
}

/// Does what a confined child was told on its standard input, and returns what it answers.
pub fn serve_file_tool(request: &str) -> String {
    let answer = match serde_json::from_str(request) {
        Ok(call) => perform(call, &|| false),
        Err(error) => ToolOutput::error(format!("the call is not valid: {error}")),
    };
    let answer = FileAnswer { text: answer.text, is_error: answer.is_error };
    serde_json::to_string(&answer).expect("text can be written as JSON")
}

fn perform(call: FileCall, stop: &dyn Fn() -> bool) -> ToolOutput {
    match try_perform(call, stop) {
        Ok(text) => ToolOutput::ok(capped(text)),
        Err(Refusal(reason)) => ToolOutput::error(reason),
    }
}

fn try_perform(call: FileCall, stop: &dyn Fn() -> bool) -> Result<String, Refusal> {
    let FileCall { root, is_read_only, name, arguments } = call;
    if is_read_only && matches!(name.as_str(), "write_file" | "edit_file") {
        return refuse(format!("{name} is not allowed: this agent may only read files"));
    }
    let root = Root::open(&root)?;
    match name.as_str() {
        "read_file" => text::read(&root, &parsed(&name, arguments)?, stop),
        "write_file" => write(&root, &parsed(&name, arguments)?),
        "edit_file" => edit(&root, parsed(&name, arguments)?),
        "list_directory" => search::list(&root, &parsed(&name, arguments)?, stop),
        "search_files" => search::search(&root, &parsed(&name, arguments)?, stop),
        _ => refuse(format!("there is no tool {name} here")),
    }
}

fn parsed<T: for<'a> Deserialize<'a>>(name: &str, arguments: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Refusal(format!("the arguments of {name} are not valid: {error}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    path: String,
    content: String,
}

fn write(root: &Root, args: &Write) -> Result<String, Refusal> {
    if args.content.len() > WRITE_BYTES_MAX {
        return refuse(format!("the content is larger than {WRITE_BYTES_MAX} bytes"));
    }
    let place = root.place(&root.below(&args.path)?)?;
    place.put(args.content.as_bytes()).map_err(|error| Refusal(format!("{}: {error}", args.path)))?;
    let did = if place.found.is_some() { "Replaced" } else { "Created" };
    Ok(format!("{did} {} ({} bytes).", args.path, args.content.len()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    path: String,
    #[serde(default)]
    edits: Vec<Replacement>,
    old_text: Option<String>,
    new_text: Option<String>,
    #[serde(default)]
    replace_all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

/// All of the edits are made, or none.
fn edit(root: &Root, args: Edit) -> Result<String, Refusal> {
    let mut edits = args.edits;
    match (args.old_text, args.new_text) {
        (Some(old_text), Some(new_text)) => {
            edits.push(Replacement { old_text, new_text, replace_all: args.replace_all });
        }
        (None, None) => {}
        _ => return refuse("old_text and new_text go together"),
    }
    if edits.is_empty() {
        return refuse("there is nothing to do: give edits, or old_text and new_text");
    }
    let below = root.below(&args.path)?;
    let mut content = text::whole(root, &below, WRITE_BYTES_MAX)?;
    let mut changes = 0;
    for (n, edit) in edits.iter().enumerate() {
        let which = if edits.len() == 1 { String::new() } else { format!(" of edit {}", n + 1) };
        if edit.old_text.is_empty() {
            return refuse(format!("the old text{which} is empty; write_file writes whole files"));
        }
        if edit.old_text == edit.new_text {
            return refuse(format!("the old and the new text{which} are the same"));
        }
        let found = content.matches(&edit.old_text).count();
        let expected = if edit.replace_all { found.max(1) } else { 1 };
        if found != expected {
            return refuse(format!(
                "the old text{which} was found {found} times in {}, expected exactly 1; nothing was changed{}",
                args.path,
                if found > 1 { " (give more of the text around it, or replace_all)" } else { "" }
            ));
        }
        content = content.replace(&edit.old_text, &edit.new_text);
        changes += found;
        if content.len() > WRITE_BYTES_MAX {
            return refuse(format!("{} would be larger than {WRITE_BYTES_MAX} bytes", args.path));
        }
    }
    let place = root.place(&below)?;
    place.put(content.as_bytes()).map_err(|error| Refusal(format!("{}: {error}", args.path)))?;
    Ok(format!("Edited {}: {changes} replaced.", args.path))
}

fn definitions() -> Vec<ToolDef> {
    let path =
        json!({ "type": "string", "description": "Relative to the workspace, or absolute inside it." });
    let whole = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let text = |description: &str| json!({ "type": "string", "description": description });
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    let replacement = json!({
        "type": "object",
        "properties": {
            "old_text": text("Text to replace, exactly as it is in the file; it has to be there exactly once."),
            "new_text": text("What takes its place."),
            "replace_all": flag("Replace it wherever it is."),
        },
        "required": ["old_text", "new_text"],
        "additionalProperties": false,
    });
    vec![
        tool(
            "read_file",
            "Read a text file. Long files come in parts: the answer says which offset goes on.",
            Reach::Harmless,
            &json!({
                "path": path,
                "offset": whole("The first line to read, counted from 1."),
                "limit": whole("How many lines to read; 2000 if not given."),
            }),
            &["path"],
        ),
        tool(
            "write_file",
            "Write a text file, replacing what is there. Missing directories are made.",
            Reach::World,
            &json!({ "path": path, "content": text("All of the file's text.") }),
            &["path", "content"],
        ),
        tool(
            "edit_file",
            "Replace text in a file. Each old text has to be there exactly once; all edits are made, or none.",
            Reach::World,
            &json!({
                "path": path,
                "edits": { "type": "array", "items": replacement, "description": "Made in this order." },
                "old_text": text("For one edit, instead of edits."),
                "new_text": text("For one edit, instead of edits."),
                "replace_all": flag("For one edit: replace it wherever it is."),
            }),
            &["path"],
        ),
        tool(
            "list_directory",
            "List a directory: names, directories with a slash at the end, links with where they lead.",
            Reach::Harmless,
            &json!({ "path": path, "depth": whole("How deep to look; 1 if not given, 8 at most.") }),
            &[],
        ),
        tool(
            "search_files",
            "Find lines in text files, as path:line: text. It looks everywhere below the path except in .git, \
             large and binary files; links are not followed.",
            Reach::Harmless,
            &json!({
                "pattern": text("A regular expression (Rust syntax, ASCII classes)."),
                "path": path,
                "glob": text("Only files like this: *.rs, src/**/*.ts, *.{js,ts}"),
                "literal": flag("Take the pattern as plain text."),
                "ignore_case": flag("Capital letters do not matter."),
            }),
            &["pattern"],
        ),
    ]
}

fn tool(name: &str, description: &str, reach: Reach, properties: &Value, required: &[&str]) -> ToolDef {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let Value::Object(input_schema) = schema else { unreachable!("written as an object above") };
    ToolDef { name: name.to_owned(), description: description.to_owned(), input_schema, reach }
}
