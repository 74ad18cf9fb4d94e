//! Generates the types of the messages from `proto/`.

fn main() {
    println!("cargo::rerun-if-changed=proto");
    protobuf_codegen::Codegen::new()
        .pure()
        .include("proto")
        .inputs(["common", "container", "sentry", "syscall"].map(|name| format!("proto/{name}.proto")))
        .cargo_out_dir("messages")
        .run_from_script();
}
