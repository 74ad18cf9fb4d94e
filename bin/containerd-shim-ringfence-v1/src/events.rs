//! Events to containerd, in the order in which they happened.
//!
//! One thread sends them, so no other thread waits for containerd while it holds a lock. When containerd restarts, the
//! thread connects anew. Events are packed without reflection, which would cost 300 kB of tables.

use crate::time::timestamp;
use containerd_shim_protos::EventsClient;
use containerd_shim_protos::events::task::{
    TaskCheckpointed, TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskPaused,
    TaskResumed, TaskStart,
};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{self, Message};
use containerd_shim_protos::shim::events::{Envelope, ForwardRequest};
use containerd_shim_protos::ttrpc::{self, Client, context};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long containerd may take for one event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often an event is tried again, at intervals of a second.
const TRIES: usize = 20;

/// An event: what containerd calls it.
pub(crate) trait Event: Message {
    const TOPIC: &str;
}

macro_rules! topics {
    ($($event:ident $topic:literal)*) => {
        $(impl Event for $event {
            const TOPIC: &str = $topic;
        })*
    };
}

topics! {
    TaskCreate "/tasks/create"
    TaskStart "/tasks/start"
    TaskExecAdded "/tasks/exec-added"
    TaskExecStarted "/tasks/exec-started"
    TaskCheckpointed "/tasks/checkpointed"
    TaskPaused "/tasks/paused"
    TaskResumed "/tasks/resumed"
    TaskExit "/tasks/exit"
    TaskDelete "/tasks/delete"
    TaskOOM "/tasks/oom"
}

/// Where events go.
#[derive(Clone)]
pub(crate) struct Events {
    namespace: String,
    sender: Arc<Mutex<Option<Sender<Envelope>>>>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Events {
    pub(crate) fn new(namespace: String) -> Self {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("events".into()).spawn(move || deliver(&receiver));
        if let Err(error) = &thread {
            log::error!("no events: {error}");
        }
        Self {
            namespace,
            sender: Arc::new(Mutex::new(Some(sender))),
            thread: Arc::new(Mutex::new(thread.ok())),
        }
    }

    pub(crate) fn send<E: Event>(&self, event: E) {
        let envelope = match pack(&event, &self.namespace) {
            Ok(envelope) => envelope,
            Err(error) => return log::error!("event {}: {error}", E::TOPIC),
        };
        let sender = self.sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(sender) = sender.as_ref() {
            // Without the thread the event is lost; its failure to start has been logged.
            let _ = sender.send(envelope);
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

fn pack<E: Event>(event: &E, namespace: &str) -> protobuf::Result<Envelope> {
    let any = Any {
        type_url: format!("containerd.events.{}", E::NAME),
        value: event.write_to_bytes()?,
        ..Any::default()
    };
    let mut envelope = Envelope::new();
    envelope.set_topic(E::TOPIC.into());
    envelope.set_namespace(namespace.into());
    envelope.set_timestamp(timestamp());
    envelope.set_event(any);
    Ok(envelope)
}

fn connect() -> ttrpc::Result<EventsClient> {
    let address = std::env::var("TTRPC_ADDRESS").unwrap_or_default();
    let address = if address.contains("://") { address } else { format!("unix://{address}") };
    Ok(EventsClient::new(Client::connect(&address)?))
}

fn deliver(envelopes: &Receiver<Envelope>) {
    let mut client = None;
    for envelope in envelopes {
        let mut request = ForwardRequest::new();
        let topic = envelope.topic().to_string();
        request.set_envelope(envelope);
        for attempt in 0..TRIES {
            if attempt > 0 {
                std::thread::sleep(Duration::from_secs(1));
            }
            let context = context::with_timeout(TIMEOUT.as_nanos() as i64);
            let sent = match client.take() {
                Some(client) => Ok(client),
                None => connect(),
            }
            .and_then(|connected| connected.forward(context, &request).map(|_| connected));
            match sent {
                Ok(connected) => {
                    client = Some(connected);
                    break;
                }
                Err(error) => log::warn!("event {topic}: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_what_they_are() {
        let oom = TaskOOM { container_id: "c".into(), ..TaskOOM::default() };
        let envelope = pack(&oom, "k8s.io").unwrap();
        assert_eq!((envelope.topic(), envelope.namespace()), ("/tasks/oom", "k8s.io"));
        assert_eq!(envelope.event().type_url, "containerd.events.TaskOOM");
        assert_eq!(TaskOOM::parse_from_bytes(&envelope.event().value).unwrap(), oom);
    }
}
