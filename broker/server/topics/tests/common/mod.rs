//! A matcher that follows the text of the standard, for comparison.

/// Whether `filter` matches `topic` by [MQTT-4.7.1-2], [MQTT-4.7.1-3] and [MQTT-4.7.2-1].
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
