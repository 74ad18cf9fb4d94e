//! Rulesets and domains as plain data, for a checkpoint. Layers are shared between domains, so all are saved together and named
//! by their places in a list. Files are objects of a list as well: what leads to them is kept elsewhere.

use crate::domain::{Domain, Layer, MAX_LAYERS};
use crate::ruleset::{Handled, MAX_RULES, Object, ObjectKey, Pool, Rules, Ruleset};
use abi::{Errno, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A layer, or a ruleset that is not in force, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// Accesses to files and ports that are denied but for rules, and what stays inside.
    pub handled: [u64; 3],
    /// Files by their places in the list of objects, and what is allowed.
    pub files: Vec<(usize, u64)>,
    /// Ports, and what is allowed.
    pub ports: Vec<(u16, u64)>,
}

/// Collects the layers of a kernel.
#[derive(Debug, Default)]
pub struct LandlockSaver {
    layers: Vec<LayerState>,
    /// Places of layers by address, and what keeps the addresses.
    places: HashMap<usize, usize>,
    kept: Vec<Arc<Layer>>,
    objects: Vec<Object>,
    of_key: BTreeMap<ObjectKey, usize>,
}

impl LandlockSaver {
    /// The places of a domain's layers, the first enforced one first.
    pub fn domain(&mut self, domain: &Domain) -> Vec<usize> {
        domain.layers.iter().map(|layer| self.layer(layer)).collect()
    }

    fn layer(&mut self, layer: &Arc<Layer>) -> usize {
        let address = Arc::as_ptr(layer).addr();
        if let Some(place) = self.places.get(&address) {
            return *place;
        }
        self.kept.push(layer.clone());
        let place = self.push(layer.handled, &layer.rules);
        self.places.insert(address, place);
        place
    }

    /// The place of a ruleset's copy.
    pub fn ruleset(&mut self, ruleset: &Ruleset) -> usize {
        self.push(ruleset.handled, &ruleset.rules.lock())
    }

    fn push(&mut self, handled: Handled, rules: &Rules) -> usize {
        let mut files = Vec::new();
        for (accesses, object) in rules.files.values() {
            let place = *self.of_key.entry(object.key).or_insert_with(|| {
                self.objects.push(object.clone());
                self.objects.len() - 1
            });
            files.push((place, *accesses));
        }
        let Handled { fs, net, scoped } = handled;
        let ports = rules.ports.iter().map(|(port, accesses)| (*port, *accesses)).collect();
        self.layers.push(LayerState { handled: [fs, net, scoped], files, ports });
        self.layers.len() - 1
    }

    /// The files that rules name so far.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The layers so far.
    pub fn layers(&self) -> &[LayerState] {
        &self.layers
    }
}

/// Layers out of plain data.
#[derive(Debug)]
pub struct LandlockRestorer {
    pool: Arc<Pool>,
    layers: Vec<Arc<Layer>>,
}

impl LandlockRestorer {
    /// The layers of plain data; `objects` are the files that their rules name. EINVAL for what cannot be, ENOMEM when there are
    /// too many rules.
    pub fn new(pool: &Arc<Pool>, saved: &[LayerState], objects: &[Object]) -> Result<LandlockRestorer> {
        let layer = |one: &LayerState| {
            let [fs, net, scoped] = one.handled;
            let handled = Handled { fs, net, scoped }.check().map_err(|_| Errno::EINVAL)?;
            if one.files.len() + one.ports.len() > MAX_RULES {
                return Err(Errno::EINVAL);
            }
            let mut files: BTreeMap<ObjectKey, (u64, Object)> = BTreeMap::new();
            for (place, accesses) in &one.files {
                let object = objects.get(*place).ok_or(Errno::EINVAL)?;
                files.entry(object.key).or_insert_with(|| (0, object.clone())).0 |= *accesses;
            }
            let ports = one.ports.iter().copied().collect();
            Ok(Arc::new(Layer { handled, rules: Rules::new(pool, files, ports)? }))
        };
        let layers = saved.iter().map(layer).collect::<Result<_>>()?;
        Ok(LandlockRestorer { pool: pool.clone(), layers })
    }

    /// The domain with layers of these places.
    pub fn domain(&self, places: &[usize]) -> Result<Arc<Domain>> {
        if !(1..=MAX_LAYERS).contains(&places.len()) {
            return Err(Errno::EINVAL);
        }
        let layer = |place: &usize| self.layers.get(*place).cloned().ok_or(Errno::EINVAL);
        Ok(Arc::new(Domain { layers: places.iter().map(layer).collect::<Result<_>>()? }))
    }

    /// The ruleset with this place.
    pub fn ruleset(&self, place: usize) -> Result<Ruleset> {
        let layer = self.layers.get(place).ok_or(Errno::EINVAL)?;
        let (files, ports) = (layer.rules.files.clone(), layer.rules.ports.clone());
        let rules = lock_order::Mutex::new(Rules::new(&self.pool, files, ports)?);
        Ok(Ruleset { handled: layer.handled, rules })
    }
}
