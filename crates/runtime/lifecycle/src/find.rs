//! Finds a container, and its sentry.

use crate::directory::{Container, SOCKET};
use crate::record::Record;
use crate::{Error, Result, Settings};
use sandbox::client::Client;
use std::os::fd::AsFd;

impl Settings {
    /// The container of that name.
    pub(crate) fn find(&self, id: &str) -> Result<(Container, Record)> {
        Ok(Container::find(&self.state_dir(), id)?)
    }
}

/// A connection to a container's sentry.
pub(crate) fn connect(container: &Container) -> Result<Client> {
    let connected = Client::connect(container.dir()?.as_fd(), SOCKET);
    connected.map_err(|_| Error::from("container not running"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_container_is_named() {
        let settings = Settings { root: Some("/r".into()), rootless: true, ..Settings::default() };
        let error = settings.find("no/name").map(|_| ()).unwrap_err();
        assert_eq!((error.status(), error.message()), (128, "container does not exist: no/name"));
    }
}
