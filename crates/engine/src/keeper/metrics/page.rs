//! Numbers as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::Write as _;

use super::{BUCKETS, Histogram};

#[derive(Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        self.0.write_fmt(line).ok();
        self.0.push('\n');
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(super) fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    pub(super) fn many<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        labels: [&str; N],
        values: impl Iterator<Item = ([String; N], u64)>,
    ) {
        self.head(name, kind, help);
        for (of, value) in values {
            // Every label is a word of ours: a state, a tier, a code, the name of a system call.
            let pairs: Vec<String> =
                labels.iter().zip(&of).map(|(label, of)| format!("{label}=\"{of}\"")).collect();
            self.line(format_args!("{name}{{{}}} {value}", pairs.join(",")));
        }
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        self.curve(name, "", histogram);
    }

    /// One histogram per word of a label.
    pub(super) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        all: impl Iterator<Item = (&'a str, &'a Histogram)>,
    ) {
        self.head(name, "histogram", help);
        for (of, histogram) in all {
            self.curve(name, &format!("{label}=\"{of}\""), histogram);
        }
    }

    fn curve(&mut self, name: &str, label: &str, histogram: &Histogram) {
        let (comma, braced) =
            if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
        let mut so_far = 0;
        for (bound, count) in BUCKETS.iter().zip(histogram.counts) {
            so_far += count;
            self.line(format_args!("{name}_bucket{{{label}{comma}le=\"{}\"}} {so_far}", bound.as_secs_f64()));
        }
        self.line(format_args!("{name}_bucket{{{label}{comma}le=\"+Inf\"}} {}", histogram.count));
        self.line(format_args!("{name}_sum{braced} {}", histogram.sum.as_secs_f64()));
        self.line(format_args!("{name}_count{braced} {}", histogram.count));
    }
}
