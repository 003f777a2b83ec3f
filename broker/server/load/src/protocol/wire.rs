//! The message of a load: encoded once, numbered for each publication, recognised in copies.

use mqtick_packet::{Outgoing, Packet, Publish, Qos, Version, decode, frame, publish};
use mqtick_sn::{Message, Qos as SensorQos, Topic, encode};

use mqtick_net::failure::{Failure, Outcome};

/// Octets of a payload that identify it: publisher (24 bits) and message (40 bits).
pub const LEAST_SIZE: usize = 8;

/// Octets of the publisher's number.
const STREAM: usize = 3;

/// Bits of the message's number.
const NUMBER: usize = 8 * (LEAST_SIZE - STREAM);

/// Most publishers.
pub const STREAMS: usize = 1 << (8 * STREAM);

/// Octets of the longest packet that is taken.
const LONGEST: usize = 2 << 20;

/// Most octets that are compared at once.
const EXPECTED: usize = 1 << 12;

/// Fills the rest of a payload.
const FILL: u8 = b'.';

/// The message of one publisher.
#[derive(Debug, Clone)]
pub struct Template {
    octets: Vec<u8>,
    /// Offset of the packet identifier, above QoS 0; in MQTT-SN, of the topic's id.
    id_at: Option<usize>,
    /// Whether the identifier changes with the number.
    numbers_id: bool,
    payload_at: usize,
    topic: String,
    stream: u32,
    qos: Qos,
    /// Packets to compare with, for [`Template::follow`].
    expected: Vec<u8>,
}

impl Template {
    /// Encodes it. `size`: octets of the payload, at least [`LEAST_SIZE`].
    ///
    /// # Errors
    /// Where MQTT cannot carry such a message.
    pub fn new(
        version: Version,
        topic: &str,
        qos: Qos,
        size: usize,
        stream: u32,
        retain: bool,
    ) -> Outcome<Self> {
        let payload = payload(size, stream);
        let mut octets = Vec::new();
        let message = Outgoing {
            qos,
            retain,
            topic,
            id: 1,
            payload: &payload,
            ..Outgoing::default()
        };
        let id_at = publish(&mut octets, version, &message);
        let payload_at = octets.len().checked_sub(payload.len());
        let too_long = || Failure::Use(format!("--size {size}: MQTT cannot carry that."));
        let payload_at = payload_at.ok_or_else(too_long)?;
        Ok(Self {
            octets,
            id_at,
            numbers_id: true,
            payload_at,
            topic: topic.to_owned(),
            stream,
            qos,
            expected: Vec::new(),
        })
    }

    /// The same for MQTT-SN, at QoS 0; `id`: the topic's id of the publisher.
    ///
    /// # Errors
    /// Where a datagram cannot carry such a message.
    pub fn of_sensor(topic: &str, id: u16, size: usize) -> Outcome<Self> {
        let data = payload(size, 0);
        let message = Message::Publish {
            dup: false,
            qos: SensorQos::AtMostOnce,
            retain: false,
            topic: Topic::Registered(id),
            message_id: 0,
            data: &data,
        };
        let mut octets = Vec::new();
        let payload_at = encode(&message, &mut octets)
            .then(|| octets.len() - data.len())
            .ok_or_else(|| Failure::Use(format!("--size {size}: MQTT-SN cannot carry that.")))?;
        Ok(Self {
            octets,
            id_at: payload_at.checked_sub(4),
            numbers_id: false,
            payload_at,
            topic: topic.to_owned(),
            stream: 0,
            qos: Qos::AtMostOnce,
            expected: Vec::new(),
        })
    }

    /// Returns its QoS.
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Returns octets of the whole packet.
    pub fn length(&self) -> usize {
        self.octets.len()
    }

    /// Returns the packet, to be numbered.
    pub fn packet(&self) -> &[u8] {
        &self.octets
    }

    /// Numbers the packet at the beginning of `octets`; its identifier follows from the number.
    #[inline]
    pub fn number(&self, octets: &mut [u8], sequence: u64) {
        let id_at = self.id_at.filter(|_| self.numbers_id);
        if let Some(place) = id_at.and_then(|at| octets.get_mut(at..at + 2)) {
            let id = (sequence % u64::from(u16::MAX)) as u16 + 1;
            place.copy_from_slice(&id.to_be_bytes());
        }
        self.place_numbers(octets, self.stream, sequence);
    }

    #[inline]
    fn place_numbers(&self, octets: &mut [u8], stream: u32, sequence: u64) {
        let numbers = u64::from(stream) << NUMBER | sequence & ((1 << NUMBER) - 1);
        let octets = octets.get_mut(self.payload_at..).unwrap_or_default();
        if let Some(place) = octets.first_chunk_mut() {
            *place = numbers.to_be_bytes();
        }
    }

    /// Recognises a copy at the beginning of `octets`, by all octets but its numbers. Returns
    /// publisher, number, and packet identifier (0 at QoS 0; in MQTT-SN, the topic's id).
    #[inline]
    pub fn recognise(&self, octets: &[u8]) -> Option<(u32, u64, u16)> {
        let octets = octets.get(..self.octets.len())?;
        let (head, payload) = octets.split_at_checked(self.payload_at)?;
        let (own_head, own) = self.octets.split_at_checked(self.payload_at)?;
        let id = match self.id_at {
            None => (head == own_head).then_some(0)?,
            Some(at) => {
                let same = head.get(..at)? == own_head.get(..at)?
                    && head.get(at + 2..)? == own_head.get(at + 2..)?;
                same.then_some(u16::from_be_bytes(*head.get(at..)?.first_chunk()?))?
            }
        };
        let (stream, sequence) = numbers(payload, own)?;
        Some((stream, sequence, id))
    }

    /// Counts packets at the beginning of `octets` that are a publisher's next messages, at QoS 0.
    /// It may find fewer than there are.
    pub fn follow(&mut self, octets: &[u8], stream: u32, next: u64) -> u64 {
        let each = self.octets.len();
        if self.id_at.is_some() || each > EXPECTED {
            return 0;
        }
        let (mut used, mut count, mut next) = (0, 1, next);
        let begun = next;
        while let Some(some) = octets.get(used..used + count * each) {
            let mut expected = std::mem::take(&mut self.expected);
            while expected.len() < count * each {
                expected.extend_from_slice(&self.octets);
            }
            for (packet, number) in expected
                .chunks_exact_mut(each)
                .zip(next..next + count as u64)
            {
                self.place_numbers(packet, stream, number);
            }
            let are_they = expected.get(..some.len()) == Some(some);
            self.expected = expected;
            if !are_they {
                break;
            }
            (used, next) = (used + some.len(), next + count as u64);
            if 2 * count * each <= EXPECTED {
                count *= 2;
            }
        }
        next - begun
    }

    /// Recognises a message that came in a packet with other octets; returns publisher and number.
    pub fn read(&self, message: &Publish<'_>) -> Option<(u32, u64)> {
        let own = self.octets.get(self.payload_at..)?;
        let same = message.topic == self.topic && message.payload.len() == own.len();
        same.then(|| numbers(message.payload, own))?
    }
}

/// Returns publisher and number of a payload, if its other octets are as they should be.
#[inline]
fn numbers(payload: &[u8], own: &[u8]) -> Option<(u32, u64)> {
    let (number, rest) = payload.split_first_chunk::<LEAST_SIZE>()?;
    let number = u64::from_be_bytes(*number);
    (rest == own.get(LEAST_SIZE..)?).then_some(())?;
    Some(((number >> NUMBER) as u32, number & ((1 << NUMBER) - 1)))
}

fn payload(size: usize, stream: u32) -> Vec<u8> {
    let mut payload = vec![FILL; size.max(LEAST_SIZE)];
    let [_, name @ ..] = stream.to_be_bytes();
    payload.splice(..STREAM, name);
    payload
}

/// Returns the packet at the beginning of `octets` and its length; None if it is not complete.
///
/// # Errors
/// Where they are not MQTT.
pub fn packet(octets: &[u8], version: Version) -> Outcome<Option<(Packet<'_>, usize)>> {
    let garbage = |error| {
        Failure::Failed(format!(
            "the broker sent something that is not MQTT: {error}."
        ))
    };
    let Some(frame) = frame(octets, LONGEST).map_err(garbage)? else {
        return Ok(None);
    };
    let packet = decode(&frame, version).map_err(garbage)?;
    Ok(Some((packet, frame.length)))
}

/// Returns how many octets are missing of the packet at the beginning of `octets`; of `usual`
/// octets, if its length has not come.
pub fn missing(octets: &[u8], usual: usize) -> usize {
    // A fixed header has at most five octets; the length is in the last four, seven bits each.
    let mut remaining = 0;
    for (place, octet) in octets.iter().take(5).enumerate().skip(1) {
        remaining |= usize::from(octet & 0x7f) << (7 * (place - 1));
        if octet & 0x80 == 0 {
            return (1 + place + remaining).saturating_sub(octets.len());
        }
    }
    usual.saturating_sub(octets.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(version: Version, qos: Qos) -> Template {
        Template::new(version, "a/b", qos, 40, 7, false).unwrap()
    }

    #[test]
    fn a_message_is_known_again_with_its_number_and_identifier() {
        for version in [Version::V3, Version::V5] {
            for (qos, id) in [(Qos::AtMostOnce, 0), (Qos::AtLeastOnce, 66)] {
                let template = template(version, qos);
                let mut octets = template.packet().repeat(2);
                template.number(&mut octets, u64::from(u16::MAX) + 65);
                assert_eq!(template.recognise(&octets), Some((7, 65_600, id)));
                let (packet, length) = packet(&octets, version).unwrap().unwrap();
                let Packet::Publish(message) = packet else {
                    panic!("{packet:?}")
                };
                assert_eq!(
                    (template.read(&message), message.id),
                    (Some((7, 65_600)), id)
                );
                assert_eq!(length, template.length());
            }
        }
    }

    #[test]
    fn a_message_of_mqtt_sn_is_known_again_by_whatever_id_its_receiver_has() {
        let template = Template::of_sensor("a/b", 7, 40).unwrap();
        let mut octets = template.packet().to_vec();
        template.number(&mut octets, 65_600);
        assert_eq!(octets.len(), 47);
        assert_eq!(octets.get(..7), Some([47, 0x0c, 0, 0, 7, 0, 0].as_slice()));
        assert_eq!(template.recognise(&octets), Some((0, 65_600, 7)));
        octets[4] = 9;
        assert_eq!(template.recognise(&octets), Some((0, 65_600, 9)));
        octets[2] = 0x20;
        assert_eq!(template.recognise(&octets), None);
    }

    #[test]
    fn a_changed_message_is_not_ours() {
        let template = template(Version::V3, Qos::AtMostOnce);
        let octets = template.packet().to_vec();
        for place in 0..octets.len() {
            let mut changed = octets.clone();
            changed[place] ^= 1;
            let number = template.payload_at + STREAM..template.payload_at + LEAST_SIZE;
            let known = template
                .recognise(&changed)
                .is_some_and(|(stream, ..)| stream == 7);
            assert_eq!(known, number.contains(&place), "octet {place}");
        }
        assert_eq!(template.recognise(&octets[..octets.len() - 1]), None);
    }

    #[test]
    fn a_run_of_messages_is_followed_as_far_as_it_is_one() {
        let sender = template(Version::V5, Qos::AtMostOnce);
        let each = sender.length();
        let mut octets = sender.packet().repeat(300);
        for (packet, number) in octets.chunks_exact_mut(each).zip(65_530..) {
            sender.number(packet, number);
        }
        let mut receiver =
            Template::new(Version::V5, "a/b", Qos::AtMostOnce, 40, 0, false).unwrap();
        // All of it in several steps, each at least one message long.
        let mut found = 0;
        while found < 300 {
            let rest = &octets[found as usize * each..];
            let more = receiver.follow(rest, 7, 65_530 + found);
            assert!(more > 0, "after {found}");
            found += more;
        }
        assert_eq!(found, 300);
        assert_eq!(receiver.follow(&octets, 8, 65_530), 0);
        assert_eq!(receiver.follow(&octets, 7, 65_531), 0);
        assert_eq!(receiver.follow(&octets[..each - 1], 7, 65_530), 0);
        for place in (0..octets.len()).step_by(7) {
            octets[place] ^= 1;
            let more = receiver.follow(&octets, 7, 65_530) as usize;
            assert!(
                more <= place / each && (more > 0 || place < each),
                "{place}: {more}"
            );
            octets[place] ^= 1;
        }
    }

    #[test]
    fn what_is_no_mqtt_is_named() {
        for octets in [[0x00, 0x00, 0, 0, 0], [0x30, 0xff, 0xff, 0xff, 0x7f]] {
            let error = packet(&octets, Version::V3).unwrap_err();
            let text = "the broker sent something that is not MQTT: ";
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_packet_says_how_much_of_it_is_missing() {
        assert_eq!(missing(&[], 60), 60);
        assert_eq!(missing(&[0x30], 60), 59);
        assert_eq!(missing(&[0x30, 0x05, 1], 60), 4);
        assert_eq!(missing(&[0x30, 0x80, 0x01, 1], 60), 127);
        assert_eq!(missing(&[0x30, 0x02, 1, 2], 60), 0);
    }
}
