//! containerd's task API: decodes requests and encodes answers.

use crate::metrics;
use crate::options::CheckpointOptions;
use crate::stdio::Stdio;
use crate::tasks::{Answer, Tasks, fail};
use containerd_shim_protos::Task;
use containerd_shim_protos::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest, PauseRequest,
    PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest, StartRequest, StartResponse,
    StateRequest, StateResponse, StatsRequest, StatsResponse, Status, UpdateTaskRequest, WaitRequest,
    WaitResponse,
};
use containerd_shim_protos::ttrpc::{Code, TtrpcContext};
use containerd_shim_protos::types::task::ProcessInfo;
use std::sync::Arc;

/// The API that a shim serves.
pub(crate) struct Api(pub(crate) Arc<Tasks>);

impl Task for Api {
    fn state(&self, _: &TtrpcContext, req: StateRequest) -> Answer<StateResponse> {
        self.0.with(&req.id, |container| {
            let (paused, bundle) = (container.paused, container.bundle.to_string_lossy().into_owned());
            let process = container.process(&req.exec_id)?;
            let exit = process.end.get();
            let status = match (&exit, process.started) {
                (Some(_), _) => Status::STOPPED,
                (None, false) => Status::CREATED,
                (None, true) if paused => Status::PAUSED,
                (None, true) => Status::RUNNING,
            };
            Ok(StateResponse {
                id: req.id.clone(),
                exec_id: req.exec_id.clone(),
                bundle,
                pid: process.pid as u32,
                status: status.into(),
                stdin: process.stdio.stdin.clone(),
                stdout: process.stdio.stdout.clone(),
                stderr: process.stdio.stderr.clone(),
                terminal: process.stdio.terminal,
                exit_status: exit.as_ref().map_or(0, |exit| exit.status),
                exited_at: exit.map(|exit| exit.at).into(),
                ..StateResponse::default()
            })
        })
    }

    fn create(&self, _: &TtrpcContext, req: CreateTaskRequest) -> Answer<CreateTaskResponse> {
        let pid = self.0.create(req)?;
        Ok(CreateTaskResponse { pid, ..CreateTaskResponse::default() })
    }

    fn start(&self, _: &TtrpcContext, req: StartRequest) -> Answer<StartResponse> {
        let pid = self.0.start(&req.id, &req.exec_id)?;
        Ok(StartResponse { pid, ..StartResponse::default() })
    }

    fn delete(&self, _: &TtrpcContext, req: DeleteRequest) -> Answer<DeleteResponse> {
        let (pid, exit) = self.0.delete(&req.id, &req.exec_id)?;
        let exited_at = Some(exit.at).into();
        Ok(DeleteResponse { pid, exit_status: exit.status, exited_at, ..DeleteResponse::default() })
    }

    fn pids(&self, _: &TtrpcContext, req: PidsRequest) -> Answer<PidsResponse> {
        let info = |pid| ProcessInfo { pid, ..ProcessInfo::default() };
        let processes = self.0.pids(&req.id)?.into_iter().map(info).collect();
        Ok(PidsResponse { processes, ..PidsResponse::default() })
    }

    fn pause(&self, _: &TtrpcContext, req: PauseRequest) -> Answer<Empty> {
        self.0.pause(&req.id, true)?;
        Ok(Empty::default())
    }

    fn resume(&self, _: &TtrpcContext, req: ResumeRequest) -> Answer<Empty> {
        self.0.pause(&req.id, false)?;
        Ok(Empty::default())
    }

    fn checkpoint(&self, _: &TtrpcContext, req: CheckpointTaskRequest) -> Answer<Empty> {
        let options = CheckpointOptions::from_any(req.options.as_ref())
            .map_err(|error| fail(Code::INVALID_ARGUMENT, error))?;
        let image = if req.path.is_empty() { &options.image } else { &req.path };
        self.0.checkpoint(&req.id, image, options.exit)?;
        Ok(Empty::default())
    }

    fn kill(&self, _: &TtrpcContext, req: KillRequest) -> Answer<Empty> {
        self.0.kill(&req.id, &req.exec_id, req.signal, req.all)?;
        Ok(Empty::default())
    }

    fn exec(&self, _: &TtrpcContext, req: ExecProcessRequest) -> Answer<Empty> {
        let (stdin, stdout, stderr) = (req.stdin, req.stdout, req.stderr);
        let stdio = Stdio { stdin, stdout, stderr, terminal: req.terminal };
        let spec = req.spec.into_option().unwrap_or_default();
        self.0.exec(&req.id, &req.exec_id, stdio, &spec.value)?;
        Ok(Empty::default())
    }

    fn resize_pty(&self, _: &TtrpcContext, req: ResizePtyRequest) -> Answer<Empty> {
        self.0.with(&req.id, |container| {
            let side = |length: u32| u16::try_from(length).unwrap_or(u16::MAX);
            match &container.process(&req.exec_id)?.console {
                Some(console) => console
                    .resize(side(req.height), side(req.width))
                    .map_err(|error| fail(Code::UNKNOWN, format!("resize: {error}"))),
                None => Ok(()),
            }
        })?;
        Ok(Empty::default())
    }

    fn close_io(&self, _: &TtrpcContext, req: CloseIORequest) -> Answer<Empty> {
        if req.stdin {
            self.0.with(&req.id, |container| {
                let process = container.process(&req.exec_id)?;
                process.no_more_input = true;
                process.held.close_stdin();
                Ok(())
            })?;
        }
        Ok(Empty::default())
    }

    fn update(&self, _: &TtrpcContext, req: UpdateTaskRequest) -> Answer<Empty> {
        let resources = req.resources.into_option().unwrap_or_default();
        if !resources.type_url.ends_with("LinuxResources") {
            let message = format!("resources of type {:?} are not supported", resources.type_url);
            return Err(fail(Code::INVALID_ARGUMENT, message));
        }
        self.0.update(&req.id, &resources.value)?;
        Ok(Empty::default())
    }

    fn wait(&self, _: &TtrpcContext, req: WaitRequest) -> Answer<WaitResponse> {
        let end = self.0.with(&req.id, |container| Ok(container.process(&req.exec_id)?.end.clone()))?;
        let exit = end.wait();
        let exited_at = Some(exit.at).into();
        Ok(WaitResponse { exit_status: exit.status, exited_at, ..WaitResponse::default() })
    }

    fn stats(&self, _: &TtrpcContext, req: StatsRequest) -> Answer<StatsResponse> {
        let groups = self.0.groups(&req.id)?;
        let mut stats = groups.stats();
        // A sandbox that does not answer: then these are the host's figures alone.
        match self.0.events(&req.id) {
            Ok(event) => metrics::complete(&mut stats, &event),
            Err(error) => log::warn!("figures of {}: {error}", req.id),
        }
        let stats = metrics::pack(&stats, groups.is_v2(), groups.oom_kill_count())
            .map_err(|error| fail(Code::INTERNAL, format!("stats: {error}")))?;
        Ok(StatsResponse { stats: Some(stats).into(), ..StatsResponse::default() })
    }

    fn connect(&self, _: &TtrpcContext, req: ConnectRequest) -> Answer<ConnectResponse> {
        let task_pid = self.0.with(&req.id, |container| Ok(container.init.pid as u32))?;
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid,
            version: env!("CARGO_PKG_VERSION").into(),
            ..ConnectResponse::default()
        })
    }

    fn shutdown(&self, _: &TtrpcContext, _: ShutdownRequest) -> Answer<Empty> {
        self.0.shutdown();
        Ok(Empty::default())
    }
}
