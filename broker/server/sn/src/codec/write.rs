//! Encodes messages.

use super::{
    ADVERTISE, CLEAN, CONNACK, CONNECT, DISCONNECT, DUP, FORWARDED, Filter, Forwarded, GWINFO,
    Message, PINGREQ, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Qos, REGACK, REGISTER,
    RETAIN, SEARCHGW, SUBACK, SUBSCRIBE, Topic, UNSUBACK, UNSUBSCRIBE, WILL, WILLMSG, WILLMSGREQ,
    WILLMSGRESP, WILLMSGUPD, WILLTOPIC, WILLTOPICREQ, WILLTOPICRESP, WILLTOPICUPD, Will,
};

fn flags_of(qos: Qos) -> u8 {
    match qos {
        Qos::AtMostOnce => 0,
        Qos::AtLeastOnce => 1 << 5,
        Qos::ExactlyOnce => 2 << 5,
        Qos::Unconnected => 3 << 5,
    }
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// Append a message. Returns false if it has more than 65,535 octets.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.push(0);
    write(message, out);
    let length = out.len() - start;
    if let (Ok(length @ 2..), Some(place)) = (u8::try_from(length), out.get_mut(start)) {
        *place = length;
        return true;
    }
    let Ok(length) = u16::try_from(length + 2) else {
        out.truncate(start);
        return false;
    };
    let [high, low] = length.to_be_bytes();
    out.splice(start..=start, [1, high, low]);
    true
}

/// Append a message with its encapsulation. Returns false if either is too long.
pub fn encode_forwarded(
    message: &Message<'_>,
    forwarded: &Forwarded<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Ok(length) = u8::try_from(3 + forwarded.node.len()) else {
        return false;
    };
    let start = out.len();
    out.extend([length, FORWARDED, forwarded.radius & 3]);
    out.extend_from_slice(forwarded.node);
    let fits = encode(message, out);
    if !fits {
        out.truncate(start);
    }
    fits
}

fn write(message: &Message<'_>, out: &mut Vec<u8>) {
    let mut put = |kind: u8, parts: &[&[u8]]| {
        out.push(kind);
        for part in parts {
            out.extend_from_slice(part);
        }
    };
    match message {
        Message::Advertise {
            gateway,
            duration_s,
        } => put(ADVERTISE, &[&[*gateway], &duration_s.to_be_bytes()]),
        Message::SearchGateway { radius } => put(SEARCHGW, &[&[*radius]]),
        Message::GatewayInfo { gateway, address } => put(GWINFO, &[&[*gateway], address]),
        Message::Connect {
            will,
            clean,
            protocol,
            duration_s,
            client,
        } => {
            let flags = flag(*will, WILL) | flag(*clean, CLEAN);
            let duration = duration_s.to_be_bytes();
            put(
                CONNECT,
                &[&[flags, *protocol], &duration, client.as_bytes()],
            );
        }
        Message::Connack(code) => put(CONNACK, &[&[code.0]]),
        Message::WillTopicRequest => put(WILLTOPICREQ, &[]),
        Message::WillTopic(topic) => {
            let (flags, topic) = will_parts(topic);
            put(WILLTOPIC, &[flags.as_slice(), topic.as_bytes()]);
        }
        Message::WillMessageRequest => put(WILLMSGREQ, &[]),
        Message::WillMessage(octets) => put(WILLMSG, &[octets]),
        Message::Register {
            topic_id,
            message_id,
            name,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(REGISTER, &[&topic, &id, name.as_bytes()]);
        }
        Message::Regack {
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(REGACK, &[&topic, &id, &[code.0]]);
        }
        Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            data,
        } => {
            let (kind, field) = match topic {
                Topic::Registered(id) => (0, id.to_be_bytes()),
                Topic::Predefined(id) => (1, id.to_be_bytes()),
                Topic::Short(name) => (2, *name),
            };
            let flags = flag(*dup, DUP) | flags_of(*qos) | flag(*retain, RETAIN) | kind;
            put(
                PUBLISH,
                &[&[flags], &field, &message_id.to_be_bytes(), data],
            );
        }
        Message::Puback {
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(PUBACK, &[&topic, &id, &[code.0]]);
        }
        Message::Pubrec(id) => put(PUBREC, &[&id.to_be_bytes()]),
        Message::Pubrel(id) => put(PUBREL, &[&id.to_be_bytes()]),
        Message::Pubcomp(id) => put(PUBCOMP, &[&id.to_be_bytes()]),
        Message::Subscribe {
            dup,
            qos,
            message_id,
            filter,
        } => {
            let flags = flag(*dup, DUP) | flags_of(*qos) | kind_of(filter);
            let id = message_id.to_be_bytes();
            put_filter(filter, |field| put(SUBSCRIBE, &[&[flags], &id, field]));
        }
        Message::Suback {
            qos,
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(SUBACK, &[&[flags_of(*qos)], &topic, &id, &[code.0]]);
        }
        Message::Unsubscribe { message_id, filter } => {
            let (flags, id) = (kind_of(filter), message_id.to_be_bytes());
            put_filter(filter, |field| put(UNSUBSCRIBE, &[&[flags], &id, field]));
        }
        Message::Unsuback(id) => put(UNSUBACK, &[&id.to_be_bytes()]),
        Message::Pingreq { client } => put(PINGREQ, &[client.as_bytes()]),
        Message::Pingresp => put(PINGRESP, &[]),
        Message::Disconnect { duration_s } => {
            let duration = duration_s.map(u16::to_be_bytes);
            put(DISCONNECT, &[duration.as_ref().map_or(&[], |two| two)]);
        }
        Message::WillTopicUpdate(topic) => {
            let (flags, topic) = will_parts(topic);
            put(WILLTOPICUPD, &[flags.as_slice(), topic.as_bytes()]);
        }
        Message::WillTopicResponse(code) => put(WILLTOPICRESP, &[&[code.0]]),
        Message::WillMessageUpdate(octets) => put(WILLMSGUPD, &[octets]),
        Message::WillMessageResponse(code) => put(WILLMSGRESP, &[&[code.0]]),
    }
}

fn will_parts<'a>(will: &Option<Will<'a>>) -> (Option<u8>, &'a str) {
    let flags = will.map(|will| flags_of(will.qos) | flag(will.retain, RETAIN));
    (flags, will.map_or("", |will| will.topic))
}

fn kind_of(filter: &Filter<'_>) -> u8 {
    match filter {
        Filter::Name(_) => 0,
        Filter::Predefined(_) => 1,
        Filter::Short(_) => 2,
    }
}

fn put_filter(filter: &Filter<'_>, put: impl FnOnce(&[u8])) {
    match filter {
        Filter::Name(name) => put(name.as_bytes()),
        Filter::Predefined(id) => put(&id.to_be_bytes()),
        Filter::Short(name) => put(name),
    }
}
