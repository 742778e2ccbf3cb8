//! `sess serve` and `sess open`: the real binary on a port of its own, asked over HTTP.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::world::{Beside, PATIENCE, World};

/// Starts a gateway on any free port; returns it with its address.
fn serve(world: &World, args: &[&str]) -> (Beside, String) {
    let args = ["serve", "--listen", "127.0.0.1:0", "--json"].into_iter().chain(args.iter().copied());
    let gateway = Beside::start(world.command(args));
    let said: Value = serde_json::from_str(&gateway.line()).expect("JSON");
    let address = said["listening"].as_str().expect("an address").to_owned();
    (gateway, address)
}

/// Asks for `path`, and returns the whole answer.
fn get(address: &str, path: &str, headers: &[&str]) -> String {
    let host = address.strip_prefix("http://").expect("plain HTTP");
    let mut stream = TcpStream::connect(host).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn bearer(world: &World) -> String {
    format!("Authorization: Bearer {}", world.ok(["token"]).trim_end())
}

#[test]
fn it_serves_sessions_to_whoever_has_the_token() {
    let world = World::with_sessions();
    let (gateway, address) = serve(&world, &[]);
    assert!(get(&address, "/healthz", &[]).starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/sessions", &[]).starts_with("HTTP/1.1 401"));
    let listed = get(&address, "/sessions", &[&bearer(&world)]);
    assert!(listed.starts_with("HTTP/1.1 200") && listed.contains("Failing uploads"), "{listed}");
    assert_eq!(gateway.signal("TERM"), Some(0));
}

#[test]
fn it_says_where_it_listens_until_it_ends() {
    let world = World::new();
    let (gateway, address) = serve(&world, &[]);
    let path = world.data().join("gateway.json");
    let record: Value = serde_json::from_slice(&fs::read(&path).expect("recorded")).expect("JSON");
    assert_eq!(record["address"], address.as_str());
    assert_eq!(record["pid"], gateway.child.id());
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(gateway.interrupt(), Some(0));
    assert!(!path.exists());
}

#[test]
fn open_finds_the_gateway_that_runs_here() {
    let world = World::new();
    let (gateway, address) = serve(&world, &[]);
    let opened = world.json(["open"]);
    assert_eq!((&opened["address"], &opened["opened"]), (&address.as_str().into(), &false.into()));
    let link = world.ok(["open", "--print"]);
    let code = link.trim_end().strip_prefix(&format!("{address}/#login=")).expect("a link with a code");
    let login = || {
        let host = address.strip_prefix("http://").expect("plain HTTP");
        let body = serde_json::json!({ "code": code }).to_string();
        let mut stream = TcpStream::connect(host).expect("it listens");
        write!(
            stream,
            "POST /login HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        answer
    };
    let logged_in = login();
    assert!(logged_in.starts_with("HTTP/1.1 200"), "{logged_in}");
    let cookie = logged_in.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("its value");
    assert!(get(&address, "/sessions", &[&format!("Cookie: {cookie}")]).starts_with("HTTP/1.1 200"));
    assert!(login().starts_with("HTTP/1.1 401"), "a code counts once");
    assert_eq!(gateway.signal("TERM"), Some(0));
}

#[test]
fn open_starts_a_gateway_when_none_runs_and_hands_the_link_to_the_browser() {
    let world = World::new();
    // Something that stands for the browser: it writes down what it was given.
    fs::create_dir(world.path("bin")).expect("made");
    let browser = world.write("bin/xdg-open", "#!/bin/sh\nprintf %s \"$1\" > \"$HOME/opened\"\n");
    fs::set_permissions(browser, fs::Permissions::from_mode(0o755)).expect("changed");
    let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
    let env = [("DISPLAY", ":0"), ("PATH", path.as_str()), ("SESS_GATEWAY_LISTEN", "127.0.0.1:0")];
    let run = world.run_env(&env, ["open"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    let record: Value =
        serde_json::from_slice(&fs::read(world.data().join("gateway.json")).expect("recorded"))
            .expect("JSON");
    let _ends = Ends(record["pid"].as_u64().expect("a pid"));
    let address = record["address"].as_str().expect("an address");
    assert!(run.stderr.contains(&format!("Opened {address} in your browser.")), "{run:?}");
    assert!(world.read("opened").starts_with(&format!("{address}/#login=sess_")));
    assert!(get(address, "/readyz", &[]).starts_with("HTTP/1.1 200"));
    // The next one finds it.
    let again = world.json(["open"]);
    assert_eq!(again["address"], address);
}

/// Ends a process that nobody waits for.
struct Ends(u64);

impl Drop for Ends {
    fn drop(&mut self) {
        let _gone = Command::new("kill").arg(self.0.to_string()).status();
    }
}

#[test]
fn what_it_cannot_do_is_said_at_the_start() {
    let world = World::new();
    world.fails(
        ["serve", "--listen", "everywhere"],
        2,
        "--listen: \"everywhere\" is no address to listen on",
    );
    world.fails(["serve", "--listen", "0.0.0.0:0"], 2, "--insecure");
    world.fails(["serve", "--tls-cert", "x.pem"], 2, "--tls-key");
    world.fails(["serve", "--tls-cert", "x.pem", "--tls-key", "y.pem"], 2, "cannot use x.pem for TLS");
    let somebody = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = somebody.local_addr().expect("an address").to_string();
    world.fails(["serve", "--listen", &taken], 6, "--listen names another address");
    world.run_env(&[("SESS_SESSION", "x")], ["serve"]).fails(8, "only the owner may");
    world.run_env(&[("SESS_SESSION", "x")], ["open"]).fails(8, "only the owner may");
    assert!(!world.data().join("gateway.json").exists());
}

#[test]
fn units_start_it_with_the_machine() {
    let world = World::new();
    let unit = world.ok(["serve", "--listen", "127.0.0.1:4748", "--print-service", "systemd"]);
    assert!(
        unit.contains("\nExecStart=\"") && unit.contains("\"serve\" \"--listen\" \"127.0.0.1:4748\"\n"),
        "{unit}"
    );
    let home = format!("\nEnvironment=\"SESS_HOME={}\"\n", world.data().display());
    assert!(unit.contains(&home), "{unit}");
    let plist = world.ok(["serve", "--print-service", "launchd"]);
    assert!(plist.contains("<string>serve</string>") && plist.starts_with("<?xml "), "{plist}");
    assert!(!world.data().exists());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let world = World::with_sessions();
    let mut command = world.command(["serve", "--listen", "127.0.0.1:0", "--json"]);
    command.stderr(Stdio::piped());
    let mut gateway = Beside::start(command);
    let said: Value = serde_json::from_str(&gateway.line()).expect("JSON");
    let address = said["listening"].as_str().expect("an address").to_owned();
    let mut talk = BufReader::new(gateway.child.stderr.take().expect("piped")).lines();
    // A request that never becomes whole keeps it from ending for a while.
    let host = address.strip_prefix("http://").expect("plain HTTP");
    let mut half = TcpStream::connect(host).expect("it listens");
    write!(
        half,
        "PUT /sessions/old/plan HTTP/1.1\r\nHost: {host}\r\n{}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{{",
        bearer(&world)
    )
    .expect("sent");
    assert!(get(&address, "/readyz", &[]).starts_with("HTTP/1.1 200"));
    let began = Instant::now();
    let pid = gateway.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill starts").success());
    assert!(talk.any(|line| line.expect("text").starts_with("Ending: ")), "it says that it ends");
    assert_eq!(gateway.signal("TERM"), Some(130));
    assert!(began.elapsed() < Duration::from_secs(8), "it waited for the request");
    drop(half);
}
