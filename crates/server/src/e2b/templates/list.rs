//! Templates of a tenant, and builds of one, page by page: newest first.

use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::Templates;
use super::record::Record;
use super::show;
use crate::e2b::control::page::{self, Next};
use crate::e2b::form;
use crate::e2b::no::No;

/// `GET /templates`: all of them, as the first generation of that call has it.
pub(super) fn all(templates: &Templates, tenant: &Tenant) -> Value {
    json!(templates.book.of(tenant).iter().map(show::one_of_a_list).collect::<Vec<_>>())
}

/// `GET /v2/templates`.
pub(super) fn one_page(
    templates: &Templates,
    tenant: &Tenant,
    query: Option<&str>,
) -> Result<(Value, Next), No> {
    let placed = |record: Record| (place(&record.created, &record.id), record);
    let (listed, next) = cut(templates.book.of(tenant).into_iter().map(placed).collect(), query)?;
    Ok((listed.iter().map(|(_, record)| show::one_of_a_list(record)).collect(), next))
}

/// `GET /templates/{id}`: a template with a page of its builds.
pub(super) fn builds(record: &Record, query: Option<&str>) -> Result<(Value, Next), No> {
    let placed = record.builds.iter().map(|build| (place(&build.created, &build.id), build));
    let (listed, next) = cut(placed.collect(), query)?;
    Ok((show::with_builds(record, listed.into_iter().map(|(_, build)| build)), next))
}

/// Where one stands, whatever comes and goes beside it.
fn place(created: &str, id: &str) -> String {
    format!("{created} {id}")
}

fn cut<T>(all: Vec<(String, T)>, query: Option<&str>) -> Result<(Vec<(String, T)>, Next), No> {
    let query = form::pairs(query);
    let limit = page::limit(form::value(&query, "limit"))?;
    let after = form::value(&query, "nextToken").map(page::place).transpose()?;
    Ok(page::cut(all, page::Order::NewestFirst, limit, after.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::e2b::templates::{Lying, Named};
    use crate::testing::Scratch;

    #[test]
    fn templates_and_builds_come_page_by_page_and_only_their_tenants() {
        let scratch = Scratch::new("templates-pages");
        let templates = Templates::open(scratch.path().to_owned(), Lying::known_by(Vec::new)).unwrap();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        for name in ["one", "two", "three"] {
            let named = Named::parse(name).unwrap();
            templates.book.begin(&ann, &named, Vec::new(), (1, 512), &|_| false).unwrap();
        }
        let mut seen = Vec::new();
        let mut query = "limit=2".to_owned();
        for more in [true, false] {
            let (page, next) = one_page(&templates, &ann, Some(&query)).unwrap();
            seen.extend(page.as_array().unwrap().iter().map(|one| one["names"][0].to_string()));
            assert_eq!(next.is_some(), more);
            let token = next.map(|(_, token)| token.to_str().unwrap().to_owned());
            query = format!("limit=2&nextToken={}", token.unwrap_or_default());
        }
        seen.sort();
        assert_eq!(seen, [r#""one""#, r#""three""#, r#""two""#], "each once");
        assert_eq!(all(&templates, &ann).as_array().unwrap().len(), 3);
        assert_eq!(one_page(&templates, &bob, None).unwrap().0, json!([]));
        for wrong in ["limit=0", "limit=101", "limit=x", "nextToken=%25"] {
            assert_eq!(one_page(&templates, &ann, Some(wrong)).unwrap_err().status(), 400, "{wrong}");
        }

        let one = Named::parse("one").unwrap();
        let (id, newest) = templates.book.begin(&ann, &one, Vec::new(), (1, 512), &|_| false).unwrap();
        let record = templates.book.own(&ann, &id).unwrap();
        let (first, next) = builds(&record, Some("limit=1")).unwrap();
        let token = next.unwrap().1;
        let rest = format!("limit=1&nextToken={}", token.to_str().unwrap());
        let (second, end) = builds(&record, Some(&rest)).unwrap();
        let ids = [&first, &second].map(|page| page["builds"][0]["buildID"].as_str().unwrap().to_owned());
        assert!(ids[0] != ids[1] && ids.contains(&newest) && end.is_none(), "{ids:?}");
        assert_eq!(builds(&record, None).unwrap().0["builds"].as_array().unwrap().len(), 2);
    }
}
