//! Compiles the protocol definitions without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in ["proto/deviceplugin.proto", "proto/podresources.proto"] {
        println!("cargo::rerun-if-changed={file}");
        let descriptors = protox::compile([file], ["proto"])?;
        tonic_prost_build::configure()
            .build_transport(false)
            .compile_fds(descriptors)?;
    }
    Ok(())
}
