//! Attempts to escape from the sandbox, each with namespaces and without.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        fd::AsRawFd as _,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value, json};
use sess_agent::{
    confine::{self, Abilities, Bubblewrap, Confinement, Options},
    files::Files,
    mcp::{self, McpTools},
    shell::Shell,
    tool::{ToolOutput, Toolbox},
};
use sess_core::{
    agent::{FileAccess, McpServer},
    sandbox::{Network, Sandbox},
};
use tokio_util::sync::CancellationToken;

/// Where bubblewrap may be: the system's, or one that was unpacked for the tests.
const BUBBLEWRAP: &str =
    concat!("/usr/bin:/usr/local/bin:", env!("CARGO_MANIFEST_DIR"), "/../../target/tools/deb/usr/bin");

/// A workspace, a store and another workspace, with what may reach which.
struct World {
    /// Not in `/tmp`, which namespaces hide anyway.
    dir: tempfile::TempDir,
    abilities: Abilities,
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sandbox(&self) -> Sandbox {
        Sandbox { write: vec![self.text("write")], read: vec![self.text("read")], ..Sandbox::default() }
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn confined(&self, sandbox: &Sandbox) -> Result<Arc<Confinement>, confine::Error> {
        let options = Options {
            sandbox,
            workspace: &self.path("work"),
            store: Some(&self.path("store")),
            exe: Path::new(env!("CARGO_BIN_EXE_sess")),
            scratch: &self.path("scratch"),
            abilities: &self.abilities,
        };
        Confinement::new(&options).map(Arc::new)
    }

    fn shell(&self, sandbox: &Sandbox) -> Shell {
        let env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin:/sbin:/usr/sbin".to_owned())];
        let confinement = self.confined(sandbox).expect("can be confined");
        Shell::new(self.path("work"), env, Some(Duration::from_secs(60)), Some(confinement))
    }

    fn run(&self, cmd: &str) -> ToolOutput {
        self.run_in(&self.sandbox(), cmd)
    }

    fn run_in(&self, sandbox: &Sandbox, cmd: &str) -> ToolOutput {
        call(&self.shell(sandbox), "shell", json!({ "cmd": cmd }))
    }

    #[track_caller]
    fn works(&self, cmd: &str, expected: &str) {
        let answer = self.run(cmd);
        assert_eq!(
            answer.text,
            format!("{expected}[exit status 0]"),
            "{cmd} {:?}",
            self.abilities.bubblewrap
        );
    }

    #[track_caller]
    fn fails(&self, cmd: &str) {
        let answer = self.run(cmd);
        assert!(answer.is_error, "{cmd} {:?}: {}", self.abilities.bubblewrap, answer.text);
        assert!(!answer.text.contains("hidden"), "{cmd}: {}", answer.text);
    }
}

fn call(tools: &dyn Toolbox, name: &str, arguments: Value) -> ToolOutput {
    let Value::Object(arguments): Value = arguments else { panic!("no object") };
    let arguments: Map<String, Value> = arguments;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tools.call(name, arguments, &CancellationToken::new()))
}

/// Runs a test in each kind of sandbox that this machine has, and says which one it has not.
fn each(test: impl Fn(&World)) {
    let with = confine::probe(confine::find_bubblewrap(BUBBLEWRAP).as_deref());
    if !with.can_confine() {
        println!("skipped: {with}");
        return;
    }
    let without = Abilities { bubblewrap: Bubblewrap::Missing, ..with.clone() };
    let mut kinds = vec![without];
    if matches!(with.bubblewrap, Bubblewrap::Works { .. }) {
        kinds.push(with);
    } else {
        println!("skipped with namespaces: {with}");
    }
    for abilities in kinds {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let world = World { dir, abilities };
        for name in ["work", "store", "other", "write", "read", "scratch"] {
            fs::create_dir(world.path(name)).expect("made");
            fs::write(world.path(name).join("file"), "hidden\n").expect("written");
        }
        fs::write(world.path("work/file"), "mine\n").expect("written");
        test(&world);
        for name in ["store", "other", "read"] {
            let file = fs::read_to_string(world.path(name).join("file")).expect("still there");
            assert_eq!(file, "hidden\n", "{name} was changed");
            assert_eq!(fs::read_dir(world.path(name)).expect("listed").count(), 1, "{name} has grown");
        }
    }
}

#[test]
fn inside_it_is_possible_to_work() {
    each(|world| {
        world.works("cat file; echo new > new; cat new; ls", "mine\nnew\nfile\nnew\n");
        world.works(&format!("cat {}/file", world.text("read")), "hidden\n");
        world.works(&format!("echo x > {0}/file; cat {0}/file", world.text("write")), "x\n");
        world.works("f=$(mktemp); echo t > $f; cat $f; cd; echo h > h; cat h", "t\nh\n");
        world.works("echo x > /dev/null; head -c 3 /dev/zero | wc -c; (sleep 0 & wait); mkdir d", "3\n");
        if matches!(world.abilities.bubblewrap, Bubblewrap::Works { .. }) {
            world.works("git init -q . && git status --short | head -1", "?? file\n");
            world.works("chmod 755 file && stat -c %a file", "755\n");
        }
    });
}

#[test]
fn nothing_is_read_or_written_outside() {
    each(|world| {
        fs::create_dir(world.path("work/d")).expect("made");
        for place in ["store", "other"] {
            let place = world.text(place);
            for cmd in [
                format!("cat {place}/file"),
                format!("ls {place}"),
                format!("echo x > {place}/file"),
                format!("echo x > {place}/new"),
                format!("mkdir {place}/new"),
                format!("rm {place}/file"),
                format!("mv {place}/file ."),
                format!("mv file {place}/new"),
                format!("truncate -s 0 {place}/file"),
                format!("chmod 777 {place}/file || chmod 777 {place}"),
                format!("chown 1:1 {place}/file || chown -h 1:1 {place}"),
                format!("ln -s {place}/file l1 && cat l1"),
                format!("ln -s {place}/file l2 && echo x > l2"),
                format!("ln -s {place} l3 && cat l3/file"),
                format!("ln {place}/file hard && cat hard"),
                format!("ln file {place}/hard"),
                format!("cat /proc/self/root{place}/file"),
                format!("cat /proc/self/cwd/../$(basename {place})/file"),
                format!("mount --bind {place} d"),
                format!("unshare -r -m sh -c 'mount --bind {place} d; cat d/file'"),
                format!("cat ../$(basename {place})/file"),
            ] {
                world.fails(&cmd);
            }
        }
        world.fails(&format!("echo x > {}/file", world.text("read")));
        world.fails(&format!("rm {}/file", world.text("read")));
        world.fails("cat /etc/shadow");
        world.fails("echo x > /etc/new || echo x > /usr/new");
        world.fails("mknod disk b 254 0 && cat disk");
    });
}

#[test]
fn a_hard_link_that_was_there_before_is_not_written_through_by_the_tools() {
    each(|world| {
        fs::hard_link(world.path("other/file"), world.path("work/hard")).expect("linked");
        let files = Files::new(
            world.path("work"),
            FileAccess::ReadWrite,
            Some(world.confined(&world.sandbox()).expect("confined")),
        );
        let answer = call(&files, "write_file", json!({ "path": "hard", "content": "changed" }));
        assert_eq!(answer, ToolOutput::ok("Replaced hard (7 bytes)."));
    });
}

#[test]
fn tools_on_files_run_confined_too() {
    each(|world| {
        let confinement = world.confined(&world.sandbox()).expect("confined");
        let files = Files::new(world.path("work"), FileAccess::ReadWrite, Some(confinement.clone()));
        assert_eq!(call(&files, "read_file", json!({ "path": "file" })), ToolOutput::ok("mine\n"));
        let long = "line\n".repeat(200_000);
        let answer = call(&files, "write_file", json!({ "path": "a/b", "content": long }));
        assert_eq!(answer, ToolOutput::ok("Created a/b (1000000 bytes)."));
        std::os::unix::fs::symlink("../store", world.path("work/out")).expect("linked");
        let answer = call(&files, "read_file", json!({ "path": "out/file" }));
        assert!(answer.is_error && answer.text.contains("outside"), "{}", answer.text);
        // Even if the tool were rooted somewhere else, its process could not go there.
        let astray = Files::new(world.path("store"), FileAccess::ReadWrite, Some(confinement));
        for (tool, arguments) in [
            ("read_file", json!({ "path": "file" })),
            ("write_file", json!({ "path": "file", "content": "x" })),
            ("list_directory", json!({})),
        ] {
            let answer = call(&astray, tool, arguments);
            assert!(answer.is_error && !answer.text.contains("hidden"), "{tool}: {}", answer.text);
        }
    });
}

#[test]
fn other_processes_are_out_of_reach() {
    each(|world| {
        let mut command = Command::new("sleep");
        let mut victim = command.arg("1000").env("HIDDEN", "hidden").spawn().expect("sleep starts");
        let pid = victim.id();
        for cmd in [
            format!("cat /proc/{pid}/environ | grep -a hidden"),
            format!("cat /proc/{pid}/root{}/file", world.text("store")),
            format!("ls /proc/{pid}/fd/"),
            format!("cat /proc/{pid}/mem"),
            format!("cat /proc/{pid}/cmdline | grep -a sleep"),
            format!("kill -9 {pid}"),
            format!("strace -p {pid} -o /dev/null"),
            format!("nsenter -t {pid} -m true"),
        ] {
            world.fails(&cmd);
        }
        assert!(victim.try_wait().expect("asked").is_none(), "it was killed");
        victim.kill().expect("killed");
        victim.wait().expect("waited");
    });
}

#[test]
fn without_the_network_nobody_is_reached() {
    each(|world| {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
        let tcp6 = TcpListener::bind("[::1]:0").ok();
        let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
        udp.set_nonblocking(true).expect("set");
        let unix = UnixListener::bind(world.path("store/socket")).expect("bound");
        let name = format!("sess-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let hidden = UnixListener::bind_addr(&address).expect("bound");
        for socket in [&unix, &hidden] {
            socket.set_nonblocking(true).expect("set");
        }
        tcp.set_nonblocking(true).expect("set");
        let port = tcp.local_addr().expect("bound").port();
        let udp_port = udp.local_addr().expect("bound").port();
        let perl = |code: &str| format!("/usr/bin/perl -MSocket -e '{code}'");
        let socket = world.text("store/socket");
        let attempts = [
            format!("bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'"),
            format!("bash -c 'echo x > /dev/udp/127.0.0.1/{udp_port}'"),
            perl(&format!(
                "socket(S, PF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in({port}, inet_aton(\"127.0.0.1\"))) \
                 or exit 1"
            )),
            perl(&format!(
                "socket(S, PF_INET, SOCK_DGRAM, 0) && send(S, \"x\", 0, sockaddr_in({udp_port}, \
                 inet_aton(\"127.0.0.1\"))) or exit 1"
            )),
            perl(&format!(
                "socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un(\"{socket}\")) or exit 1"
            )),
            perl(&format!(
                "socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, pack(\"Sxa*\", PF_UNIX, \"{name}\")) or exit 1"
            )),
            perl("socket(S, 16, SOCK_RAW, 0) or exit 1"),
        ];
        for cmd in &attempts {
            world.fails(cmd);
        }
        if let Some(tcp6) = tcp6 {
            let port = tcp6.local_addr().expect("bound").port();
            world.fails(&format!("bash -c 'echo x > /dev/tcp/::1/{port}'"));
        }
        assert!(tcp.accept().is_err() && unix.accept().is_err() && hidden.accept().is_err());
        assert!(udp.recv(&mut [0; 8]).is_err());
        // Outside, the same attempts succeed: it is the sandbox that stopped them.
        for cmd in &attempts {
            let done = Command::new("sh").args(["-c", cmd]).output().expect("sh starts");
            assert!(done.status.success(), "{cmd}: {}", String::from_utf8_lossy(&done.stderr));
        }
        assert!(unix.accept().is_ok() && hidden.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok());
        while tcp.accept().is_ok() {}
        fs::remove_file(world.path("store/socket")).expect("removed");

        let open = Sandbox { network: Network::Allowed, ..world.sandbox() };
        let answer = world.run_in(&open, &attempts[0]);
        assert_eq!(answer.text, "[exit status 0]", "{:?}", world.abilities.bubblewrap);
        tcp.accept().expect("reached where that is allowed");
        assert!(world.run_in(&open, &attempts[5]).is_error, "an abstract socket is not the network");
        assert!(hidden.accept().is_err());
    });
}

#[test]
fn open_files_are_not_inherited() {
    each(|world| {
        let secret = fs::File::open(world.path("store/file")).expect("opened");
        // As a careless library would leave it: without the flag that closes it.
        rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).expect("set");
        let fd = secret.as_raw_fd();
        world.fails(&format!("cat <&{fd}"));
        world.fails(&format!("cat /proc/self/fd/{fd}"));
    });
}

#[test]
fn no_program_gives_more_rights() {
    each(|world| {
        let caps = world
            .run("grep -h -E 'CapEff|CapPrm|NoNewPrivs' /proc/$$/status || grep -E Cap /proc/self/status");
        if !caps.is_error {
            assert!(caps.text.contains("CapEff:\t0000000000000000"), "{}", caps.text);
            assert!(caps.text.contains("NoNewPrivs:\t1"), "{}", caps.text);
        }
        world.fails("su nobody -s /bin/sh -c true");
        world.fails("chroot . true");
        world.fails("unshare -r true");
        world.fails("date -s '2001-01-01'");
    });
}

#[test]
fn what_is_killed_leaves_no_process() {
    each(|world| {
        // Only this test has such a number.
        let seconds = format!("1000.{}", std::process::id());
        let cmd = format!("sleep {seconds} & (setsid sleep {seconds} &) ; sleep {seconds}");
        let has_namespaces = matches!(world.abilities.bubblewrap, Bubblewrap::Works { .. });
        let cmd = if has_namespaces { cmd } else { format!("sleep {seconds} & sleep {seconds}") };
        let answer = call(&world.shell(&world.sandbox()), "shell", json!({ "cmd": cmd, "timeout": 1 }));
        assert!(answer.text.contains("killed"), "{}", answer.text);
        let started = std::time::Instant::now();
        let is_left = || {
            let found = Command::new("pgrep")
                .args(["-f", &format!("^sleep {seconds}")])
                .stdout(Stdio::null())
                .status();
            found.expect("pgrep runs").success()
        };
        while is_left() {
            assert!(started.elapsed() < crate::world::PATIENCE, "{:?}", world.abilities.bubblewrap);
        }
    });
}

#[test]
fn an_outside_server_runs_confined() {
    const SERVER: &str = r#"
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
        while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case $line in
                *initialize\"*) answer "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}';;
                *tools/call*) answer "$id" "{\"content\":[{\"type\":\"text\",\"text\":\"$(cat file) $(cat $1/file || echo refused)\"}]}";;
            esac
        done"#;
    each(|world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _entered = runtime.enter();
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let options = mcp::Options {
            root: world.path("work"),
            env: Vec::new(),
            confinement: Some(world.confined(&world.sandbox()).expect("confined")),
            http: reqwest::Client::new(),
            call_timeout: mcp::CALL_TIMEOUT,
        };
        let args = ["-c", SERVER, "sh", &world.text("store")].map(str::to_owned).to_vec();
        let server = McpServer::Command { command: "sh".to_owned(), args, env: Vec::new() };
        let tools = McpTools::new(server, options.clone());
        let cancel = CancellationToken::new();
        let answer = runtime.block_on(tools.call("look", Map::new(), &cancel));
        assert_eq!(answer, ToolOutput::ok("mine refused"), "{:?}", world.abilities.bubblewrap);
        let far = McpServer::Url { url: "http://127.0.0.1:1/".to_owned(), headers: Vec::new() };
        let answer = runtime.block_on(McpTools::new(far, options).call("look", Map::new(), &cancel));
        assert!(answer.text.ends_with("which the sandbox does not allow"), "{}", answer.text);
    });
}

#[test]
fn what_leads_to_the_store_cannot_be_allowed() {
    each(|world| {
        let above = world.dir.path().display().to_string();
        for (path, reason) in [
            (above.as_str(), "it holds the store"),
            (&world.text("store"), "it holds the store"),
            ("/", "that is everything"),
            ("/proc", "leads to other processes"),
            ("relative", "not an absolute path"),
            ("/does/not/exist", "No such file or directory"),
        ] {
            for sandbox in [
                Sandbox { read: vec![path.to_owned()], ..Sandbox::default() },
                Sandbox { write: vec![path.to_owned()], ..Sandbox::default() },
            ] {
                let error = world.confined(&sandbox).expect_err(path).to_string();
                assert!(error.contains(path) && error.contains(reason), "{error}");
            }
        }
        // A link to it is the same thing.
        std::os::unix::fs::symlink(world.path("store"), world.path("link")).expect("linked");
        let sandbox = Sandbox { write: vec![world.text("link")], ..Sandbox::default() };
        assert!(world.confined(&sandbox).is_err());
    });
}

#[test]
fn a_link_cannot_be_allowed_since_it_may_lead_anywhere() {
    each(|world| {
        let link = world.path("write").join("link");
        std::os::unix::fs::symlink(world.path("read"), &link).expect("linked");
        let path = link.display().to_string();
        for sandbox in [
            Sandbox { read: vec![path.clone()], ..Sandbox::default() },
            Sandbox { write: vec![path.clone()], ..Sandbox::default() },
        ] {
            let error = world.confined(&sandbox).expect_err("a link").to_string();
            let real = fs::canonicalize(world.path("read")).expect("there").display().to_string();
            assert_eq!(
                error,
                format!(
                    "the sandbox cannot allow {path}: it leads through a link; write the real path, {real}"
                )
            );
        }
        // A slash at the end is none.
        let sandbox = Sandbox { write: vec![world.text("write") + "/"], ..Sandbox::default() };
        assert!(world.confined(&sandbox).is_ok());
    });
}

#[test]
fn a_machine_that_cannot_confine_refuses() {
    let dir = tempfile::tempdir().expect("a directory");
    let abilities = Abilities { landlock_abi: Some(3), bubblewrap: Bubblewrap::Missing };
    let options = Options {
        sandbox: &Sandbox::default(),
        workspace: dir.path(),
        store: None,
        exe: Path::new(env!("CARGO_BIN_EXE_sess")),
        scratch: dir.path(),
        abilities: &abilities,
    };
    assert_eq!(
        Confinement::new(&options).expect_err("refused").to_string(),
        "the sandbox cannot be enforced: Landlock ABI 3, no bubblewrap: agents cannot be confined, which takes \
         Landlock ABI 4 (Linux 6.7)"
    );
}
