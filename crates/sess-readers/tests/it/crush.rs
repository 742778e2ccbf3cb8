//! What Crush's sample does not show.

use std::fs;

use sess_readers::{Catalogue, Homes};

use crate::{
    databases::changed,
    homes::{copy, list},
};

#[test]
fn the_nearest_database_above_the_current_directory_is_read_and_those_on_the_list() {
    let home = copy("crush");
    let count = |cwd: &str| {
        let homes = Homes::new(home.path().to_owned(), [], Some(home.path().join(cwd)));
        Catalogue::default().look(&homes, None).sessions.len()
    };
    fs::create_dir_all(home.path().join("acme-api/src/deep")).expect("made");
    assert_eq!((count("acme-api/src/deep"), count("acme-api"), count("other")), (2, 2, 0));
    let listed = home.path().join(".local/share/crush");
    fs::create_dir_all(&listed).expect("made");
    let dir = home.path().join("acme-api/.crush");
    let projects = format!(
        r#"{{"projects":[{{"path":"/w","data_dir":"{}"}},{{"path":"/x","data_dir":"/gone"}}]}}"#,
        dir.display()
    );
    fs::write(listed.join("projects.json"), projects).expect("written");
    assert_eq!((count("acme-api"), count("other")), (2, 2));
}

#[test]
fn parts_of_all_kinds_are_told_and_sessions_for_titles_are_not() {
    let sql = r#"
        INSERT INTO sessions (id, title, updated_at, created_at) VALUES ('title-0b1c', 'Generate a title', 1, 1);
        INSERT INTO messages (id, session_id, role, parts, created_at, updated_at) VALUES
            ('m-9', '0b1c2d3e-1111-4222-8333-aaaabbbbcccc', 'user', '[{"type":"text","data":{"text":"see"}},
              {"type":"text","data":{"text":"go on","hidden":true}},
              {"type":"binary","data":{"Path":"a.png","MIMEType":"image/png","Data":"AAAA"}},
              {"type":"binary","data":{"Path":"b.txt","MIMEType":"text/plain","Data":"AAAA"}},
              {"type":"shell_command","data":{"command":"ls","output":"a","exit_code":0}},
              {"type":"later","data":{}}]', 1794470430000, 0),
            ('m-10', '0b1c2d3e-1111-4222-8333-aaaabbbbcccc', 'tool', '[
              {"type":"tool_result","data":{"tool_call_id":"a","name":"view","content":"one","data":"AAAA","mime_type":"image/png"}},
              {"type":"tool_result","data":{"tool_call_id":"b","name":"ls","content":"two","is_error":true}}]', 1794470431000, 0),
            ('m-11', '0b1c2d3e-1111-4222-8333-aaaabbbbcccc', 'assistant', '[
              {"type":"finish","data":{"reason":"error","message":"no money"}}]', 1794470432000, 0);
    "#;
    let text = changed("crush", sql);
    assert!(!text.contains("title-0b1c"), "{text}");
    let expected = "[context compacted here]
--- m-9 2026-11-12T08:00:30Z
## user
see
[image: image/png, 3 B]
[file: b.txt, text/plain, 3 B]
$ ls
a
--- m-10 2026-11-12T08:00:31Z
## tool result
one
[image: image/png, 3 B]
--- m-10 2026-11-12T08:00:31Z
## tool result
two
--- m-11 2026-11-12T08:00:32Z
## assistant
[error: no money]
--- Told { bad: 0, unknown: 1, is_torn: false }
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_damaged_database_around_the_current_directory_that_is_also_on_the_list_is_told_of_once() {
    let home = copy("crush");
    let listed = home.path().join(".local/share/crush");
    fs::create_dir_all(&listed).expect("made");
    let dir = home.path().join("acme-api/.crush");
    let projects = format!(r#"{{"projects":[{{"path":"/w","data_dir":"{}"}}]}}"#, dir.display());
    fs::write(listed.join("projects.json"), projects).expect("written");
    let problems = || list(home.path()).1;
    assert_eq!(problems(), Vec::<String>::new());
    let path = dir.join("crush.db");
    let bytes = fs::read(&path).expect("read");
    // Read for all that, and not.
    fs::write(&path, [&bytes[..], b"0"].concat()).expect("written");
    assert_eq!(problems().len(), 1, "{:?}", problems());
    fs::write(&path, "not a database").expect("written");
    assert_eq!(problems().len(), 1, "{:?}", problems());
}
