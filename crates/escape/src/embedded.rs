//! The report as data inside its own page, so that whoever keeps the page can hold its seal against it.

use crate::report::Report;

const BEGIN: &str = "<pre id=\"report\">";
const END: &str = "</pre>";
const NAMES: [(&str, &str); 5] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];

/// A page that is none of ours.
#[derive(Debug, thiserror::Error)]
#[error("there is no report in this page")]
pub struct BadPage;

/// Text as HTML.
pub(crate) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// The report as JSON, folded away: text like any other, and no script.
pub(crate) fn embed(report: &Report) -> String {
    // A report is made of texts and numbers, which always have such a form.
    let json = serde_json::to_string(report).unwrap_or_default();
    // JSON lets some of them stand as they are, and a page shows none: as JSON writes the others.
    let spelt = |c: char| match c.is_control() {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    let json: String = json.chars().map(spelt).collect();
    let how = "`blastbox audit report` takes this page, and says whether its seal holds";
    format!("<details><summary>the report as data: {how}</summary>{BEGIN}{}{END}</details>\n", safe(&json))
}

/// The JSON in a page that was written by `blastbox escape --html`; what is no page is given back as it is.
///
/// # Errors
/// Where a page holds no report.
pub fn data(text: &str) -> Result<String, BadPage> {
    if !text.starts_with("<!doctype html>") {
        return Ok(text.to_owned());
    }
    let (_, rest) = text.split_once(BEGIN).ok_or(BadPage)?;
    let (inside, _) = rest.split_once(END).ok_or(BadPage)?;
    Ok(NAMES.iter().fold(inside.to_owned(), |text, (name, sign)| text.replace(name, sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_others_is_markup() {
        assert_eq!(
            safe("<script>alert('1')</script>&\"\u{1b}"),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{1b}"
        );
    }

    #[test]
    fn the_report_is_read_back_from_its_page_as_it_was() {
        let mut report = crate::report::tests::example();
        report.rows[0].cells[0].evidence = "</pre><b>&lt;&amp;lt; \"it's\" \u{1b}\u{7f}\u{85}\n".to_owned();
        let page = crate::page::page(&report);
        let back: serde_json::Value = serde_json::from_str(&data(&page).unwrap()).unwrap();
        assert_eq!(back, serde_json::to_value(&report).unwrap());
        assert_eq!(data("{}").unwrap(), "{}", "a report that is data already");
        assert!(data("<!doctype html><p>").is_err());
    }
}
