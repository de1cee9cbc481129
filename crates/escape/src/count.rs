//! How many cells of a report have each verdict, and what that means for CI.

use serde::Serialize;

use crate::report::{Cell, ControlState, Report, SecondState, Verdict};

/// How many cells have each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the verdicts say what they mean")]
pub struct Count {
    pub held: usize,
    /// Those of `held` whose control was not seen to succeed: it is not to be had here.
    pub held_unproven: usize,
    pub escaped: usize,
    pub not_applicable: usize,
    /// Nothing of the kind is on this host.
    pub absent: usize,
    pub could_not_run: usize,
    pub broken: usize,
    /// Attempts whose control cannot be had by this caller on this host.
    pub control_unavailable: usize,
    /// Attempts that go for something that this host does not have.
    pub control_absent: usize,
    /// Attempts that the next layer stopped alone.
    pub second_held: usize,
    /// Attempts that nothing stopped once the first layer was lifted.
    pub second_fell: usize,
    /// Attempts behind a layer that can be lifted, whose next layer has nothing to hold on this host.
    pub second_absent: usize,
    /// Attempts whose next layer is named, and why no build lifts the first control alone.
    pub second_unlifted: usize,
    /// Attempts that have no second layer, and why.
    pub second_none: usize,
}

impl Count {
    /// In a line.
    #[must_use]
    pub fn told(&self) -> String {
        let Self { held, held_unproven, escaped, broken, could_not_run, not_applicable, absent, .. } = self;
        format!(
            "{held} held ({held_unproven} unproven), {escaped} escaped, {broken} broken, {could_not_run} could not run, \
             {not_applicable} not applicable, {absent} nothing there"
        )
    }

    fn add(&mut self, cell: &Cell) {
        self.held_unproven += usize::from(cell.is_unproven());
        *match cell.verdict {
            Verdict::Held => &mut self.held,
            Verdict::Escaped => &mut self.escaped,
            Verdict::NotApplicable => &mut self.not_applicable,
            Verdict::Absent => &mut self.absent,
            Verdict::CouldNotRun => &mut self.could_not_run,
            Verdict::Broken => &mut self.broken,
        } += 1;
    }
}

impl Report {
    /// Counts.
    #[must_use]
    pub fn count(&self) -> Count {
        let mut count = Count::default();
        for row in &self.rows {
            match row.control {
                ControlState::Unavailable(_) => count.control_unavailable += 1,
                ControlState::Absent(_) => count.control_absent += 1,
                ControlState::Fired(_) | ControlState::Failed(_) => {}
            }
            match row.second_state {
                SecondState::Held(_) => count.second_held += 1,
                SecondState::Fell(_) => count.second_fell += 1,
                SecondState::Absent(_) => count.second_absent += 1,
                SecondState::NotTried(_) => {}
                SecondState::Unlifted(_) => count.second_unlifted += 1,
                SecondState::Nothing(_) | SecondState::Surface(_) => count.second_none += 1,
            }
            row.cells.iter().for_each(|cell| count.add(cell));
        }
        count
    }

    /// Counts of verdicts, one for each column.
    #[must_use]
    pub fn count_columns(&self) -> Vec<Count> {
        let mut counts = vec![Count::default(); self.columns.len()];
        for row in &self.rows {
            for (count, cell) in counts.iter_mut().zip(&row.cells) {
                count.add(cell);
            }
        }
        counts
    }

    /// For CI: 0 nothing came out; 1 something did, or a second layer fell; 2 more than `tolerated` cells of a column prove
    /// nothing (broken, or could not run), nothing was held, or test builds were named and did not show what they are for.
    #[must_use]
    pub fn exit_code(&self, tolerated: usize) -> u8 {
        let doubtful = |count: &Count| count.broken.saturating_add(count.could_not_run);
        match self.count() {
            Count { escaped: 1.., .. } | Count { second_fell: 1.., .. } => 1,
            Count { held: 0, .. } => 2,
            count if self.shows_too_little(&count) => 2,
            _ if self.count_columns().iter().any(|count| doubtful(count) > tolerated) => 2,
            _ => 0,
        }
    }

    /// Whether test builds were named of which one cannot be used, or not one second layer was seen to hold where some have one.
    pub(crate) fn shows_too_little(&self, count: &Count) -> bool {
        let behind = self.rows.iter().any(|row| row.lifted.is_some());
        let named = self.test_builds.as_ref();
        named.is_some_and(|builds| !builds.unusable.is_empty() || (behind && count.second_held == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Layer;
    use crate::report::tests::example;
    use crate::subject::Builds;

    #[test]
    fn one_escaped_cell_is_a_failure_and_a_broken_one_is_no_success() {
        let code = |verdict| {
            let mut report = example();
            report.rows[0].cells[0].verdict = verdict;
            report.exit_code(0)
        };
        assert_eq!(code(Verdict::Held), 0);
        assert_eq!(code(Verdict::Escaped), 1);
        assert_eq!(code(Verdict::Broken), 2);
        assert_eq!(code(Verdict::NotApplicable), 2, "a report in which nothing was held proves nothing");
        let mut doubtful = example();
        let silent = Cell { verdict: Verdict::CouldNotRun, ..doubtful.rows[0].cells[0].clone() };
        doubtful.rows[0].cells.push(silent);
        doubtful.columns.push(doubtful.columns[0].clone());
        assert_eq!(doubtful.exit_code(0), 2, "nor does a cell that says nothing beside one that is held");
        assert_eq!(doubtful.exit_code(1), 0, "unless somebody said how many may");
        doubtful.rows[0].cells[1].verdict = Verdict::Escaped;
        assert_eq!(doubtful.exit_code(9), 1, "and nobody can say that of one that came out");
        let mut unproven = example();
        assert_eq!((unproven.count().held, unproven.count().held_unproven), (1, 0));
        unproven.rows[0].cells[0].proven = false;
        assert_eq!((unproven.count().held, unproven.count().held_unproven), (1, 1));
        let cell = &unproven.rows[0].cells[0];
        assert_eq!(
            (cell.sign(), cell.word()),
            ("~", "held, unproven"),
            "and it does not look like one that is"
        );
    }

    #[test]
    fn test_builds_that_were_named_and_show_nothing_are_no_success() {
        let layered = |state, unusable: &[&str]| {
            let mut report = example();
            (report.rows[0].lifted, report.rows[0].second_state) = (Some(Layer::Seccomp), state);
            let unusable = unusable.iter().map(|line| (*line).to_owned()).collect();
            report.test_builds = Some(Builds { unusable });
            report
        };
        let (held, not) = (SecondState::Held(String::new()), SecondState::NotTried(String::new()));
        assert_eq!(layered(held.clone(), &[]).exit_code(0), 0);
        assert_eq!(layered(not.clone(), &[]).exit_code(9), 2, "no second layer was shown");
        assert_eq!(layered(held, &["no liar"]).exit_code(9), 2, "one of them cannot be used");
        let unnamed = Report { test_builds: None, ..layered(not.clone(), &[]) };
        assert_eq!(unnamed.exit_code(0), 0, "nobody named any");
        let mut none_behind = layered(not, &[]);
        none_behind.rows[0].lifted = None;
        assert_eq!(none_behind.exit_code(0), 0, "there was nothing to show");
        let mut fallen = example();
        fallen.rows[0].second_state = SecondState::Fell(String::new());
        assert_eq!(fallen.exit_code(9), 1);
    }
}
