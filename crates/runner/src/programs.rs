//! The test programs that cargo has built, and the tests that each of them has.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A test program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The package and the target: `clinch-redis faults`.
    pub(crate) name: String,
    /// What is run.
    pub(crate) words: Vec<String>,
    /// The folder of the package, where cargo runs the tests too.
    pub(crate) folder: PathBuf,
    /// The tests that are asked for, in the order in which the program runs them; `None` where they
    /// cannot be listed.
    pub(crate) tests: Option<Vec<String>>,
    /// Those of its tests that are not asked for.
    pub(crate) left_out: Vec<String>,
}

impl Program {
    /// The doc tests of the packages that cargo is given, which it builds and runs one package after
    /// the other.
    pub(crate) fn doc_tests(packages: &[String], filters: &[String]) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut words = vec![cargo];
        words.extend(["test", "--doc", "--no-fail-fast"].map(str::to_owned));
        words.extend_from_slice(packages);
        words.push("--".to_owned());
        words.extend_from_slice(filters);
        Self {
            name: "doc tests".to_owned(),
            words,
            folder: PathBuf::from("."),
            tests: None,
            left_out: Vec::new(),
        }
    }

    /// The tests whose name contains one of the filters, if there are filters; `None` if it has none.
    pub(crate) fn select(mut self, filters: &[String]) -> Option<Self> {
        let wanted = |test: &String| filters.is_empty() || filters.iter().any(|f| test.contains(f));
        let (tests, left_out) = self.tests?.into_iter().partition::<Vec<_>, _>(wanted);
        self.left_out = left_out;
        self.tests = Some(tests);
        (self.count() > 0).then_some(self)
    }

    /// How many tests it has, as far as is known.
    pub(crate) fn count(&self) -> usize {
        self.tests.as_ref().map_or(0, Vec::len)
    }
}

/// The programs in what cargo writes with `--message-format=json`.
pub(crate) fn read(messages: impl BufRead) -> io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        // What is not JSON was printed by a build script.
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        programs.extend(program(&message));
    }
    Ok(programs)
}

fn program(message: &Value) -> Option<Program> {
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    let file = message.get("executable")?.as_str()?;
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    let target = message.pointer("/target/name")?.as_str()?;
    let kind = message.pointer("/target/kind/0")?.as_str()?;
    let unit = match kind {
        "test" => target.to_owned(),
        // An example has no tests of its own; cargo does not run it either.
        "example" => return None,
        _ => format!("({kind})"),
    };
    is_test.then(|| Program {
        name: format!("{} {unit}", package(message)),
        words: vec![file.to_owned()],
        folder: folder.to_owned(),
        tests: None,
        left_out: Vec::new(),
    })
}

/// The name in a package id, which is `…/folder#name@version` or `…/name#version`.
fn package(message: &Value) -> &str {
    let id = message.get("package_id").and_then(Value::as_str);
    let (place, rest) = id.and_then(|id| id.split_once('#')).unwrap_or_default();
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or_default(),
    }
}

/// Asks a program for its tests.
pub(crate) fn list(mut program: Program) -> io::Result<Program> {
    let (file, _) = program.words.split_first().ok_or(io::ErrorKind::NotFound)?;
    let asked = Command::new(file)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !asked.status.success() {
        let text = format!("{} does not list its tests: {}", program.name, asked.status);
        return Err(io::Error::other(text));
    }
    let listed = String::from_utf8_lossy(&asked.stdout).into_owned();
    let tests = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    program.tests = Some(tests.map(str::to_owned).collect());
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/stores/redis#clinch-redis@0.1.0","manifest_path":"/w/crates/stores/redis/Cargo.toml","target":{"kind":["test"],"name":"faults"},"profile":{"test":true},"executable":"/w/target/debug/deps/faults-1"}"#;

    #[test]
    fn test_programs_are_found_among_the_messages() {
        let lib = TEST
            .replace("\"test\"]", "\"lib\"]")
            .replace("clinch-redis@", "");
        let bin = TEST.replace("\"test\":true", "\"test\":false");
        let all = format!("{TEST}\nnot JSON\n{{}}\n{lib}\n{bin}\n");
        let programs = read(all.as_bytes()).unwrap();
        let names: Vec<&str> = programs.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["clinch-redis faults", "redis (lib)"]);
        assert_eq!(programs[0].folder, Path::new("/w/crates/stores/redis"));
    }

    #[test]
    fn filters_select_tests() {
        let mut program = read(TEST.as_bytes()).unwrap().remove(0);
        program.tests = Some(["a::one", "a::two", "b::one"].map(str::to_owned).into());
        let some = program.clone().select(&["one".to_owned()]).unwrap();
        assert_eq!(some.tests.unwrap(), ["a::one", "b::one"]);
        assert_eq!(some.left_out, ["a::two"]);
        assert_eq!(program.clone().select(&[]).unwrap().count(), 3);
        assert!(program.select(&["three".to_owned()]).is_none());
    }
}
