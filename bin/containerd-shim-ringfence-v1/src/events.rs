//! Events to containerd, in the order in which they happened.
//!
//! One thread sends them, so that nobody waits for containerd while holding anything. When containerd restarts,
//! the thread connects anew.

use containerd_shim::event::Event;
use containerd_shim::protos::protobuf::MessageDyn;
use containerd_shim::protos::ttrpc::context;
use containerd_shim::publisher::RemotePublisher;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long containerd may take for one event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often an event is tried again, at intervals of a second.
const TRIES: usize = 20;

struct Letter {
    topic: String,
    event: Box<dyn MessageDyn>,
}

/// Where events go.
#[derive(Clone)]
pub(crate) struct Events {
    sender: Arc<Mutex<Option<Sender<Letter>>>>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Events {
    pub(crate) fn new(publisher: RemotePublisher, namespace: String) -> Self {
        let (sender, receiver) = channel();
        let work = move || deliver(publisher, &namespace, &receiver);
        let thread = std::thread::Builder::new().name("events".into()).spawn(work);
        if let Err(error) = &thread {
            log::error!("no events: {error}");
        }
        Self { sender: Arc::new(Mutex::new(Some(sender))), thread: Arc::new(Mutex::new(thread.ok())) }
    }

    pub(crate) fn send(&self, event: impl Event) {
        let letter = Letter { topic: event.topic(), event: Box::new(event) };
        let sender = self.sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(sender) = sender.as_ref() {
            // Without the thread there is nobody to tell; it has been said.
            let _ = sender.send(letter);
        }
    }

    /// Sends what is left.
    pub(crate) fn finish(&self) {
        drop(self.sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn deliver(mut publisher: RemotePublisher, namespace: &str, letters: &Receiver<Letter>) {
    for letter in letters {
        for attempt in 0..TRIES {
            let context = context::with_timeout(TIMEOUT.as_nanos() as i64);
            match publisher.publish(context, &letter.topic, namespace, letter.event.clone_box()) {
                Ok(()) => break,
                Err(error) => log::warn!("event {}: {error}", letter.topic),
            }
            if attempt + 1 < TRIES {
                std::thread::sleep(Duration::from_secs(1));
            }
            let address = std::env::var("TTRPC_ADDRESS").unwrap_or_default();
            if let Ok(new) = RemotePublisher::new(address) {
                publisher = new;
            }
        }
    }
}
