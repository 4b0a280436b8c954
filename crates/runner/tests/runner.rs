//! The runner with programs that are shell scripts.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A folder with programs, removed at the end.
struct Programs {
    folder: PathBuf,
    messages: String,
}

impl Programs {
    fn new(name: &str) -> Self {
        let folder = format!("clinch-runner-test-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).unwrap();
        Self {
            folder,
            messages: String::new(),
        }
    }

    /// A program with tests a, b and c; `script` is the body of one that is to run `$tests`, the
    /// names that are not skipped, in the folder of all of them.
    fn add(&mut self, name: &str, script: &str) {
        let file = self.folder.join(name);
        let text = format!(
            r#"#!/bin/sh
if [ "$1" = --list ]; then printf 'a: test\nb: test\nc: test\n'; exit; fi
tests=
for test in a b c; do
  case " $* " in *" --skip $test "*) ;; *) tests="$tests $test" ;; esac
done
{script}
echo "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured"
"#
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let message = serde_json::json!({
            "package_id": "path+file:///w#demo@0.1.0",
            "manifest_path": self.folder.join("Cargo.toml"),
            "target": {"kind": ["test"], "name": name},
            "profile": {"test": true},
            "executable": file,
        });
        self.messages += &format!("{message}\n");
    }

    fn start(&self, args: &[&str]) -> Child {
        let messages = self.folder.join("messages");
        fs::write(&messages, &self.messages).unwrap();
        // As in the background of a script, and under nohup.
        Command::new("sh")
            .args(["-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_clinch-test-runner"))
            .args(args)
            .env("TMPDIR", &self.folder)
            .stdin(fs::File::open(messages).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        said(self.start(args).wait_with_output().unwrap())
    }

    /// Whether a process runs whose id a program has written to a file.
    fn lives(&self, file: &str) -> bool {
        let pid = fs::read_to_string(self.folder.join(file)).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn said(output: Output) -> (i32, String) {
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

/// A process in a session of its own, which has nothing of the program but its environment.
const STRAY: &str = "setsid sh -c 'echo $$ >stray; exec sleep 1000' >/dev/null 2>&1 &
while [ ! -s stray ]; do sleep 0.01; done";
const EACH: &str = "for test in $tests; do echo \"test $test ... ok\"; done";

#[test]
fn one_line_for_each_program_and_the_sum() {
    let mut programs = Programs::new("sum");
    programs.add("one", EACH);
    programs.add("two", EACH);
    let (code, text) = programs.run(&[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("3 tests  demo one\n"), "{text}");
    assert!(
        text.ends_with("\n6 passed, 0 failed, 0 skipped\n"),
        "{text}"
    );
    let (code, text) = programs.run(&["no such test"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.ends_with("\n0 passed, 0 failed, 0 skipped\n"),
        "{text}"
    );
}

#[test]
fn a_test_that_hangs_fails_by_name_and_the_others_run() {
    let mut programs = Programs::new("hang");
    let hangs =
        "for test in $tests; do [ $test = b ] && sleep 1000; echo \"test $test ... ok\"; done
case $tests in ' c') echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'; exit;; esac";
    let stray = format!("if [ \"$tests\" = ' a b c' ]; then {STRAY}; fi");
    programs.add("one", &format!("{stray}\n{hangs}"));
    let (code, text) = programs.run(&["--limit", "1"]);
    assert_eq!(code, 1, "{text}");
    let line = "FAILED demo one b: took longer than 1 s and was stopped\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("sleep 1000"), "what it waited for: {text}");
    assert!(
        text.ends_with("\n2 passed, 1 failed, 0 skipped\n"),
        "{text}"
    );
    assert!(!programs.lives("stray"));
}

#[test]
fn a_program_that_crashes_fails_what_ran() {
    let mut programs = Programs::new("crash");
    let crashes = "case $tests in ' a b c') kill -ABRT $$;; esac
echo 'test c ... ok'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'; exit";
    programs.add("one", crashes);
    let (code, text) = programs.run(&[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("FAILED demo one a: the program ended"),
        "{text}"
    );
    assert!(
        text.ends_with("\n1 passed, 2 failed, 0 skipped\n"),
        "{text}"
    );
}

#[test]
fn what_a_program_leaves_is_named_and_killed() {
    let mut programs = Programs::new("left");
    programs.add("one", &format!("{STRAY}\n{EACH}"));
    let (code, text) = programs.run(&[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("left running:"), "{text}");
    assert!(!programs.lives("stray"));
}

#[test]
fn a_signal_stops_everything() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut programs = Programs::new("stop");
        // The session's own processes end with it by the kernel's hand, others by the runner's.
        let stray = if signal == Signal::KILL { "" } else { STRAY };
        programs.add("one", &format!("{stray}\necho $$ >main; sleep 1000"));
        let child = programs.start(&[]);
        while fs::metadata(programs.folder.join("main")).map_or(0, |file| file.len()) == 0 {
            std::thread::yield_now();
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        if signal == Signal::KILL {
            while programs.lives("main") {}
            continue;
        }
        let (code, text) = said(output);
        assert_eq!(code, 128 + signal.as_raw(), "{text}");
        assert!(text.contains("stopped by signal"), "{text}");
        assert!(!programs.lives("main") && !programs.lives("stray"));
    }
}

#[test]
fn programs_find_the_same_signals_everywhere() {
    let mut programs = Programs::new("signals");
    // The bits of HUP, INT and QUIT.
    let ignored = "ignored=$(sed -n 's/^SigIgn:.*\\(.\\)$/\\1/p' /proc/self/status)
[ $((0x$ignored & 7)) = 0 ] || exit 1";
    programs.add("one", &format!("{ignored}\n{EACH}"));
    let (code, text) = programs.run(&[]);
    assert_eq!(code, 0, "{text}");
}
