//! Prints the gateway's description: OpenAPI 3.1.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

fn main() {
    let described = sess_server::gateway::openapi();
    println!("{}", serde_json::to_string_pretty(&described).expect("plain JSON"));
}
