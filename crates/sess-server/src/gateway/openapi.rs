//! OpenAPI 3.1, from the table of routes and the types on the wire.

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use sess_protocol::errors::{ErrorBody, ErrorType};

use super::routes::{Gives, Policy, ROUTES, Route, Takes};

/// Returns the description of everything that can be asked for over HTTP.
pub fn openapi() -> Value {
    let mut generator = generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter() {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut generator);
    }
    let error = generator.subschema_for::<ErrorBody>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Intersession",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The gateway of sess: sessions, transcripts, plans and runs of AI agents.",
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": super::admission::COOKIE },
            },
            "responses": {
                "Error": {
                    "description": "Why the request was not carried out.",
                    "content": { "application/json": { "schema": error } },
                },
            },
        },
    })
}

/// Returns what collects schemas, where OpenAPI looks for them.
pub(super) fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.into_generator()
}

/// Returns the names of an object's properties.
pub(super) fn property_names(schema: &Schema) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

/// Returns the names of those properties that are lists.
pub(super) fn list_names(schema: &Schema) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let is_list = |property: &Value| match property.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        kind => kind.is_some_and(|kind| kind == "array"),
    };
    properties.filter(|(_, property)| is_list(property)).map(|(name, _)| name.clone()).collect()
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "summary": route.about,
        "operationId": operation_id(route),
        "parameters": parameters(route, generator),
        "responses": responses(route, generator),
    });
    operation["security"] = match route.policy {
        Policy::Open(_) => json!([]),
        Policy::Needs(scope, _) => {
            operation["description"] = format!("Needs the scope `{}`.", scope.as_str()).into();
            json!([{ "bearer": [] }, { "cookie": [] }])
        }
    };
    let json_body = |schema: Schema, required: bool| json!({ "required": required, "content": { "application/json": { "schema": schema } } });
    match route.takes {
        Takes::Nothing => {}
        Takes::Json(schema) => operation["requestBody"] = json_body(schema(generator), true),
        Takes::Maybe(schema) => operation["requestBody"] = json_body(schema(generator), false),
        Takes::File => {
            operation["requestBody"] = json!({ "required": true, "content": { "*/*": { "schema": {} } } });
        }
        Takes::Frames => {
            operation["requestBody"] = json!({ "content": { "application/json": { "schema": {} } } });
        }
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let parts = route.path.split(['/', '.']).filter(|part| !part.is_empty());
    let words = parts.map(|part| part.trim_matches(['{', '}']));
    let mut id = route.method.as_str().to_ascii_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

fn parameters(route: &Route, generator: &mut SchemaGenerator) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let Some(query) = route.query else { return parameters };
    let schema = query(generator);
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in property_names(&schema) {
        let mut property = schema.get("properties").map(|all| all[&name].clone()).unwrap_or_default();
        let about = property.as_object_mut().and_then(|fields| fields.remove("description"));
        let mut parameter = json!({ "name": name, "in": "query", "schema": plain(property) });
        if required.contains(&json!(name)) {
            parameter["required"] = true.into();
        }
        if let Some(about) = about {
            parameter["description"] = about;
        }
        // Names with commas between them, as one value.
        parameter["style"] = "form".into();
        parameter["explode"] = false.into();
        parameters.push(parameter);
    }
    parameters
}

/// A parameter is there or not there: `null` cannot be written in an address.
fn plain(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type")
        && let Some(list) = kinds.as_array_mut()
    {
        list.retain(|kind| kind != "null");
        if let [only] = list.as_slice() {
            *kinds = only.clone();
        }
    }
    // One of a few words is a reference to them.
    if let Some(given) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        given.retain(|kind| kind.get("type").is_none_or(|kind| kind != "null"));
        if let [only] = given.as_slice() {
            return only.clone();
        }
    }
    schema
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = match route.gives {
        Gives::Nothing => json!({ "204": { "description": "It is done." } }),
        Gives::Json(status, schema) => {
            let content = json!({ "application/json": { "schema": schema(generator) } });
            json!({ status.to_string(): { "description": route.about, "content": content } })
        }
        Gives::JsonOrEvents(schema) => {
            let content = json!({
                "application/json": { "schema": schema(generator) },
                "text/event-stream": { "schema": { "type": "string" } },
            });
            json!({ "200": { "description": route.about, "content": content } })
        }
        Gives::Text => {
            let content = json!({ "text/plain": { "schema": { "type": "string" } } });
            json!({ "200": { "description": route.about, "content": content } })
        }
        Gives::Page => json!({
            "200": { "description": route.about },
            "304": { "description": "The browser has it already." },
        }),
        Gives::Frames => json!({ "default": { "description": "As that protocol says." } }),
    };
    // Any of them has the same shape, so that each is named and none is described twice.
    for kind in ErrorType::ALL {
        let status = kind.status().to_string();
        if responses.get(&status).is_none() {
            responses[status] = json!({ "$ref": "#/components/responses/Error" });
        }
    }
    responses
}
