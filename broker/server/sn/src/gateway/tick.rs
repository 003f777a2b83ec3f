//! What happens without a datagram: repeats, and the end of those who are gone.

use super::engine::Engine;
use super::{Gateway, SECOND_NS, send};
use crate::client::{Keep, State, lock};
use crate::codec::{Message, encode};
use std::sync::Arc;

impl<M: Keep, S> Gateway<M, S> {
    /// Once a second: send again what was not answered, and see who is gone.
    pub fn tick(&mut self, now_ns: u64, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        self.connecting.retain(|_, one| !one.is_over(now_ns));
        let (mut lost, mut over) = (Vec::new(), Vec::new());
        for (client, session) in &self.sessions {
            let mut seat = lock(&session.seat);
            self.dropped += std::mem::take(&mut seat.dropped);
            if session.gone {
                let kept_ns = u64::from(self.settings.expiry_s) * SECOND_NS;
                if now_ns.saturating_sub(session.heard_ns) > kept_ns {
                    over.push(Arc::clone(client));
                }
            } else if session.is_late(now_ns) {
                lost.push(Arc::clone(client));
            } else if !seat.repeat(now_ns, &mut self.out) {
                match session.asleep {
                    true => seat.leave(State::Asleep), // it did not stay awake for all of them
                    false => lost.push(Arc::clone(client)),
                }
            }
            send(engine, &session.address, &mut self.out);
        }
        for client in lost {
            self.lose(now_ns, &client, engine);
        }
        for client in over {
            self.forget(&client, engine);
        }
    }

    /// How an ADVERTISE looks, the next one within so many seconds.
    #[must_use]
    pub fn advertisement(&self, duration_s: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let gateway = self.settings.gateway;
        encode(
            &Message::Advertise {
                gateway,
                duration_s,
            },
            &mut out,
        );
        out
    }
}
