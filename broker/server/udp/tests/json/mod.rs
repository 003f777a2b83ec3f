//! Reads the vectors: JSON without escapes and fractions.

use std::collections::BTreeMap;

/// A value.
pub enum Value {
    Text(String),
    Number(usize),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.map().get(name)
    }

    pub fn map(&self) -> &BTreeMap<String, Value> {
        match self {
            Self::Map(map) => map,
            _ => panic!("no map"),
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Self::List(list) => list,
            _ => panic!("no list"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => panic!("no text"),
        }
    }

    pub fn number(&self) -> usize {
        match self {
            Self::Number(number) => *number,
            _ => panic!("no number"),
        }
    }
}

pub fn read(text: &str) -> Value {
    let (value, rest) = value(text);
    assert!(rest.trim().is_empty(), "{rest}");
    value
}

fn value(text: &str) -> (Value, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('[') {
        let mut list = Vec::new();
        while let Some(one) = item(rest, ']') {
            let (item, after) = value(one);
            list.push(item);
            rest = after;
        }
        return (Value::List(list), after(rest, ']'));
    }
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut map = BTreeMap::new();
        while let Some(one) = item(rest, '}') {
            let (name, behind) = string(one);
            let (item, behind) = value(after(behind, ':'));
            map.insert(name, item);
            rest = behind;
        }
        return (Value::Map(map), after(rest, '}'));
    }
    if text.starts_with('"') {
        let (text, rest) = string(text);
        return (Value::Text(text), rest);
    }
    let end = text
        .find(|one: char| !one.is_ascii_digit())
        .unwrap_or(text.len());
    (
        Value::Number(text[..end].parse().expect(text)),
        &text[end..],
    )
}

/// The text from the next item on; `None`: the list or map ends here.
fn item(text: &str, end: char) -> Option<&str> {
    let text = text.trim_start();
    let text = text.strip_prefix(',').unwrap_or(text).trim_start();
    (!text.starts_with(end)).then_some(text)
}

fn after(text: &str, mark: char) -> &str {
    text.trim_start().strip_prefix(mark).expect("a mark")
}

fn string(text: &str) -> (String, &str) {
    let (inside, rest) = after(text, '"').split_once('"').expect("an end");
    assert!(!inside.contains('\\'), "escapes are not read");
    (inside.to_owned(), rest)
}
