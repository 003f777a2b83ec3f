//! What a filter matches by the text of the standard, to compare with.

/// Say by [MQTT-4.7.1-2], [MQTT-4.7.1-3] and [MQTT-4.7.2-1] whether `filter` matches `topic`.
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let filter: Vec<&str> = filter.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    let same = |(filter, topic): (&&str, &&str)| filter == topic || *filter == "+";
    match filter.split_last() {
        Some((&"#", parents)) => {
            topic.len() >= parents.len() && parents.iter().zip(&topic).all(same)
        }
        _ => filter.len() == topic.len() && filter.iter().zip(&topic).all(same),
    }
}
