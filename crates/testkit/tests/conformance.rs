//! The suite on the memory store, in full and less one capability at a time.

use clinch_core::store::Capability;
use clinch_testkit::conformance::{self, Lacking, Memory, Subject};

fn main() -> std::process::ExitCode {
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Memory)];
    for capability in Capability::EVERY {
        subjects.push(Box::new(Lacking {
            full: Memory,
            capability,
        }));
    }
    conformance::main(subjects)
}
