//! The options of `clinch bench`.

use std::time::Duration;

/// What to measure, and for how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Seconds for each cell of the table
    #[arg(long, value_name = "N", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// Short cells and few holds: to see that it works, not how fast it is
    #[arg(long)]
    pub quick: bool,
    /// Measure only these
    #[arg(long, value_name = "CELL", value_delimiter = ',')]
    pub only: Vec<Cell>,
}

/// The parts of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cell {
    /// The fewest raw operations that a lock needs, at 1, 8 and 64 workers.
    Floor,
    /// Acquire and release, each worker its own name, at 1, 8 and 64 workers.
    Uncontended,
    /// One name, 2, 8 and 64 tasks of one process.
    Contended,
    /// One name, 4 processes.
    Processes,
    /// From release in one process to entry in another.
    Handover,
    /// The price of keeping many holds.
    Renew,
    /// `clinch run` beside `flock`.
    Command,
}

impl Args {
    /// Whether this part is to be measured.
    pub(crate) fn wants(&self, cell: Cell) -> bool {
        self.only.is_empty() || self.only.contains(&cell)
    }

    /// How long a cell is measured.
    pub(crate) fn span(&self) -> Duration {
        match self.quick {
            true => Duration::from_millis(200),
            false => self.seconds,
        }
    }

    /// How long a cell runs before it is measured.
    pub(crate) fn warm_up(&self) -> Duration {
        match self.quick {
            true => Duration::from_millis(50),
            false => (self.seconds / 2).min(Duration::from_millis(500)),
        }
    }
}

/// Seconds as a number: 0.05 to 600.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds"))?;
    match (0.05..=600.0).contains(&number) {
        true => Ok(Duration::from_secs_f64(number)),
        false => Err("give 0.05 to 600 seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "601", "NaN", "inf", "1s", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
