//! The document and the code say the same.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor, value::Error};

use super::*;
use crate::ask::{Deadline, Limits, NewBox, NewExec, RuleChanges, Run, Signal, TerminalSize, WorkspaceAsk};
use crate::routes;

fn paper() -> Value {
    document(&routes::all())
}

/// The names of a struct's fields: what serde's derive tells whoever is to read it.
fn fields_of<T: for<'de> Deserialize<'de>>() -> BTreeSet<&'static str> {
    struct Ask<'a>(&'a mut BTreeSet<&'static str>);
    impl<'de> Deserializer<'de> for Ask<'_> {
        type Error = Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(serde::de::Error::custom("only structs are asked"))
        }
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(fields);
            Err(serde::de::Error::custom("the names are all that was wanted"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut found = BTreeSet::new();
    T::deserialize(Ask(&mut found)).err();
    found
}

fn described(schema: &str) -> BTreeSet<String> {
    let paper = paper();
    let fields = &paper["components"]["schemas"][schema]["properties"];
    fields.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn every_body_is_described_by_exactly_the_fields_that_it_has() {
    let same = |schema: &str, fields: BTreeSet<&'static str>| {
        assert!(!fields.is_empty());
        assert_eq!(described(schema), fields.iter().map(|name| (*name).to_owned()).collect(), "{schema}");
    };
    same("NewBox", fields_of::<NewBox>());
    same("Limits", fields_of::<Limits>());
    same("WorkspaceAsk", fields_of::<WorkspaceAsk>());
    same("NewExec", fields_of::<NewExec>());
    same("TerminalSize", fields_of::<TerminalSize>());
    same("Run", fields_of::<Run>());
    same("Deadline", fields_of::<Deadline>());
    same("Signal", fields_of::<Signal>());
    same("RuleChanges", fields_of::<RuleChanges>());
}

#[test]
fn every_route_is_in_the_document_and_the_other_way_round() {
    let paper = paper();
    let written: BTreeSet<(String, String)> = paper["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let built: BTreeSet<(String, String)> =
        routes::all().iter().map(|route| (route.path.to_owned(), route.method.to_string())).collect();
    assert_eq!(written, built);
    assert_eq!(built.len(), routes::all().len(), "a route comes twice");
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    found.push(to.clone());
                }
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let (paper, mut references) = (paper(), Vec::new());
    walk(&paper, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let path = reference.strip_prefix('#').unwrap();
        assert!(paper.pointer(path).is_some(), "{reference}");
    }
    let ids: BTreeSet<&str> = routes::all().iter().map(|route| route.operation.id).collect();
    assert_eq!(ids.len(), routes::all().len());
}
