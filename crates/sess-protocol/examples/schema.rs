//! Prints the JSON Schema of the wire types.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

fn main() {
    println!("{}", serde_json::to_string_pretty(&sess_protocol::schema()).expect("plain JSON"));
}
