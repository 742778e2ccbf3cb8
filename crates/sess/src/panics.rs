//! What a panic says. It may quote what it worked on, and so is masked like everything that leaves.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::PanicHookInfo,
};

use sess_core::redact::redact;

use crate::output::visible;

/// Lets every panic of this process be told with secrets masked.
pub fn mask() {
    std::panic::set_hook(Box::new(|panic| {
        let mut told = told(panic);
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            told = format!("{told}\n{trace}");
        }
        // Whoever closed stderr does not want to hear it.
        let _told = std::io::Write::write_all(&mut std::io::stderr(), format!("{told}\n").as_bytes());
    }));
}

fn told(panic: &PanicHookInfo<'_>) -> String {
    let said = panic.payload_as_str().unwrap_or("no reason is given");
    let said = visible(&redact(said).0);
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    format!("sess: a mistake in sess itself{place}: {said}")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_panic_says_where_and_why_and_no_secret() {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(|panic| TOLD.lock().expect("no panic").push(told(panic))));
        let token = format!("sess_{}", "0123456789abcdef".repeat(4));
        let quoted = token.clone();
        let broken = std::panic::catch_unwind(move || {
            panic!("no session has {quoted}\u{1b}[2J password=hunter2hunter2")
        });
        std::panic::set_hook(usual);
        assert!(broken.is_err());
        let told = TOLD.lock().expect("no panic").concat();
        assert!(
            told.contains("panics.rs") && told.contains("no session has sess_0…cdef␛[2J password="),
            "{told}"
        );
        assert!(!told.contains(&token[6..]) && !told.contains("hunter2hunter2"), "{told}");
    }
}
