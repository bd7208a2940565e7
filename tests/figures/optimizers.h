// Made by optimizers.py with PyTorch 2.15.0: what its optimizers, schedules and averages compute in float64.
// clang-format off
#pragma once
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace espalier::testing {

/// The elements of both parameters after these numbers of steps.
inline constexpr std::array<int, 4> figure_steps{4, 40, 400, 1000};
using ParameterFigures = std::array<std::array<double, 8>, 4>;
struct OptimizerFigures {
  std::string name;
  ParameterFigures values;
};
struct LbfgsFigures {
  bool line_search;
  int evaluations;
  std::array<double, 4> losses;
  ParameterFigures values;
};
struct ScheduleFigures {
  std::string name;
  std::vector<double> factors;
};
struct PlateauFigures {
  bool relative, maximize;
  std::vector<double> rates;
};

inline const std::vector<OptimizerFigures> optimizer_figures{
    {"Sgd",
     {{{{-0x1.2b3a9d1b9aba2p-1, -0x1.7feedf8012ed9p-2, -0x1.272ce8a58e47ep-8, 0x1.735c63f339c03p-2, 0x1.384a380650608p-1, -0x1.c92f2c4546257p-2, 0x1.005189e93f7fbp-3, -0x1.8aeb8867323b7p-2}},
       {{0x1.57a01554a8a5bp-6, -0x1.3bda3db084d1dp-2, -0x1.0a308fa27d3abp-7, 0x1.a615437550acfp-3, 0x1.2ef1e994ecf23p-3, -0x1.19a5ac5eb049ap-2, -0x1.b5b86489f1dafp-5, -0x1.103ed49841d7dp-5}},
       {{0x1.4802c2bfb9ac8p-2, -0x1.2eed466de3dd9p-4, -0x1.761565f855357p-4, -0x1.ced30fd6e281fp-4, -0x1.5498b5433c6eep-4, -0x1.52039ec427e68p-4, 0x1.f67a85798557ap-5, 0x1.2d1a2f13858cbp-7}},
       {{0x1.487b0c4294d0fp-2, -0x1.1c9929c5b7813p-4, -0x1.78851c2ec9f2fp-4, -0x1.e75e2b68aa53ep-4, -0x1.529b12c6d5e9ap-4, -0x1.3d57beec93b88p-4, 0x1.f60724d9125dep-5, 0x1.13fef937e157cp-7}}}}},
    {"Sgd, dampening",
     {{{{-0x1.8e579e54170abp-2, -0x1.58bb188c3c711p-2, -0x1.f4979433cd764p-3, 0x1.95b527ae9205fp-2, 0x1.d0f982b020287p-2, -0x1.c33cc4a48dfa7p-2, -0x1.10c31950ef279p-5, -0x1.5337750605b8cp-2}},
       {{0x1.e931d9110be09p-3, -0x1.6af57fde2cd5ep-7, -0x1.34323f2441560p-3, -0x1.16dbb594d43ddp-3, -0x1.a10ef1061c6b2p-4, -0x1.7b4042230cdc3p-6, -0x1.4df10d6c94030p-8, 0x1.2c397334f9fe8p-7}},
       {{0x1.3db608214af82p-2, -0x1.1ede118588514p-4, -0x1.6897269bf2ea3p-4, -0x1.e16510df6938fp-4, -0x1.45495b5205a70p-4, -0x1.3ed7952b35008p-4, 0x1.ba20491b76a19p-5, 0x1.0878e72e007e2p-7}},
       {{0x1.3db6082c96cd5p-2, -0x1.1ede11a298954p-4, -0x1.6897269705037p-4, -0x1.e16510cd4d085p-4, -0x1.45495b42cbef5p-4, -0x1.3ed7953f88cd6p-4, 0x1.ba2049544cbdcp-5, 0x1.0878e767685e7p-7}}}}},
    {"Sgd, nesterov",
     {{{{-0x1.1750babf18b6cp-1, -0x1.7081c8675aa13p-2, -0x1.4c36132325c87p-4, 0x1.80bdf8886872dp-2, 0x1.280c68ec75e8dp-1, -0x1.ceb77f2f60dfcp-2, 0x1.6af9a81a7b298p-4, -0x1.7e692732d38f7p-2}},
       {{0x1.8220b75775b2dp-2, -0x1.a62e4107131e9p-4, -0x1.db5c38c80255bp-4, -0x1.4145b4c7e05f1p-4, -0x1.d97cd9956567fp-4, -0x1.419f4b8ab9db1p-3, 0x1.1ca949d2aff61p-3, 0x1.bd3c2b6df2f52p-11}},
       {{0x1.3efdd0448f6ffp-2, -0x1.1dd9682d10c8ap-4, -0x1.6651bb005a4ecp-4, -0x1.e1b5a3d80dc29p-4, -0x1.4ac495bdad2fbp-4, -0x1.3ce9e218db85dp-4, 0x1.cb9e8315d153dp-5, 0x1.056a323305964p-7}},
       {{0x1.3efdd044f089dp-2, -0x1.1dd9683746315p-4, -0x1.6651bb020c8c6p-4, -0x1.e1b5a3ca1b2cbp-4, -0x1.4ac495ba747f7p-4, -0x1.3ce9e2255ec3cp-4, 0x1.cb9e83137f774p-5, 0x1.056a32422377bp-7}}}}},
    {"Sgd, one cycle",
     {{{{-0x1.7b6403fff0968p-1, -0x1.7f3d65676abbap-2, -0x1.cabeda056a291p-9, 0x1.802f5f108307cp-2, 0x1.7bf9afc0cab65p-1, -0x1.fdda64ba2841ap-2, 0x1.f03f70f85fcf5p-3, -0x1.fa47ac8fc4a9dp-2}},
       {{-0x1.7459e83b271a1p-2, -0x1.75779d6ba00d8p-2, -0x1.158aeb145ec34p-7, 0x1.5cad2516b68c1p-2, 0x1.af4e3639ff989p-2, -0x1.80a06fc96649ap-2, -0x1.ffd92d2ac60f0p-6, -0x1.d0fe3fa17730bp-3}},
       {{0x1.468c8bf9d0c26p-2, -0x1.2095c09cf6a76p-4, -0x1.7b11c4e581485p-4, -0x1.e7745eb694a24p-4, -0x1.488cc5c47734cp-4, -0x1.419729cccde0dp-4, 0x1.d60def478a3d4p-5, 0x1.11c2db4336b0ep-7}},
       {{0x1.459206b97cea1p-2, -0x1.28dc3c2a7a6aap-4, -0x1.79c475811ae90p-4, -0x1.e99b3e4047b91p-4, -0x1.3f4f2adc4f409p-4, -0x1.46bcdec5bfcfdp-4, 0x1.b6b51e7f941dep-5, 0x1.f7100be47f680p-8}}}}},
    {"Adadelta",
     {{{{-0x1.7cee2b8d85973p-1, -0x1.7fc0482b276efp-2, -0x1.2686ba3624dc0p-14, 0x1.7de8c79636904p-2, 0x1.7ca43624380b2p-1, -0x1.f8594e24b7737p-2, 0x1.f2ab3cd37b3f6p-3, -0x1.f1173c826a02ep-2}},
       {{-0x1.5f4c095aca56bp-1, -0x1.795690142e1cbp-2, 0x1.e4e7f6c4ce7d0p-13, 0x1.6177a05edbad5p-2, 0x1.5d343042862ebp-1, -0x1.ca5f606755cbap-2, 0x1.774da098199d7p-3, -0x1.8d359831959cep-2}},
       {{-0x1.ad16686929ca2p-4, -0x1.287476a73b77fp-3, 0x1.a40141a0420a2p-6, -0x1.bebf8dc11a3ffp-7, 0x1.1680fe91d24e6p-4, -0x1.6a7b7017328abp-3, -0x1.dafb4854e5f3fp-5, 0x1.0934b1a8008b3p-6}},
       {{0x1.438a5dbf807c9p-2, -0x1.22a21141a5a71p-4, -0x1.6e27b23d448a5p-4, -0x1.e34b69df3fe6dp-4, -0x1.644ff0fd760e6p-4, -0x1.2bc3424a2af2fp-4, 0x1.11b3aeb2fc4d2p-4, 0x1.6f7c150b50102p-9}}}}},
    {"Adadelta, options",
     {{{{-0x1.7923fb41a8e86p-1, -0x1.7f36c962a32f4p-2, -0x1.bad385665dd60p-13, 0x1.7b017112991f2p-2, 0x1.78825c4b73a2dp-1, -0x1.eec5f4b7a3458p-2, 0x1.e291b8158d418p-3, -0x1.debc33917dcf8p-2}},
       {{-0x1.3deaf1e0332a5p-1, -0x1.675be643feecap-2, 0x1.1f0eab1cfa288p-10, 0x1.31c05edef3f2ep-2, 0x1.3aad2fb846bc6p-1, -0x1.8d58df9d2358bp-2, 0x1.f9aaf0cb03cf9p-4, -0x1.1e6a511c34af7p-2}},
       {{0x1.1e64489a62a79p-3, -0x1.4424618c7c4a6p-4, 0x1.5cfed890a1472p-7, -0x1.a7b49184b285cp-4, -0x1.2baf1d7f1a652p-4, -0x1.6132b62de5cfbp-4, 0x1.d46e306629c3bp-7, 0x1.13e53988de6b0p-7}},
       {{0x1.42bd8cca2bc23p-2, -0x1.150ef6bc9f083p-4, -0x1.606d0efa5386ap-4, -0x1.df0df515a35d5p-4, -0x1.50355e100e28cp-4, -0x1.2a11ed3dbd2cep-4, 0x1.fa78ff6543ccap-5, 0x1.6fe5f004c21acp-8}}}}},
    {"Adagrad",
     {{{{-0x1.56abb1fcbe4fcp-1, -0x1.64422cca7d86dp-2, -0x1.100a7c8c41ee6p-6, 0x1.86479352fdc38p-2, 0x1.5444cdc75b287p-1, -0x1.ae77e965a8e3ap-2, 0x1.59c369be59bc8p-3, -0x1.620939c86975ap-2}},
       {{-0x1.b84e6a5e47e89p-2, -0x1.3560a66186837p-2, -0x1.45faa48ef3ea8p-7, 0x1.bd444e6082f44p-3, 0x1.b1ada911d3af2p-2, -0x1.33f2de4b98d57p-2, -0x1.d34e091bdd17ap-7, -0x1.e95394e9a95a7p-4}},
       {{0x1.5fdb74c7029eep-4, -0x1.8dac1b4d1dbf6p-4, 0x1.05a3e17da63c2p-6, -0x1.413992b153631p-4, -0x1.98005925022a1p-6, -0x1.dfda94cc680cbp-4, -0x1.544c31267c202p-7, 0x1.bca3d360cee87p-7}},
       {{0x1.fed4aa78a4f3bp-3, -0x1.2c625fa2220cbp-4, -0x1.0345ae07ec564p-5, -0x1.d58d1aac0094bp-4, -0x1.9c2f14e1ae89ap-4, -0x1.4e42a0a6dbc77p-4, 0x1.6bde18e32bf03p-5, 0x1.0caa1e6da6c3ep-7}}}}},
    {"Adagrad, accumulator",
     {{{{-0x1.575b12f11d3c3p-1, -0x1.77628a6d42cf0p-2, -0x1.067de11d7a410p-6, 0x1.75f31f39ca3b7p-2, 0x1.553f970ad8297p-1, -0x1.c838b6b941394p-2, 0x1.5d0472285823ap-3, -0x1.7c312addaf1e5p-2}},
       {{-0x1.bb47aa7637d02p-2, -0x1.43480903fb97fp-2, -0x1.3f2c99f47ad54p-7, 0x1.d2e37dfc7e272p-3, 0x1.b5afb12d3a67ap-2, -0x1.4537d082cd11dp-2, -0x1.a4d8e9ae56144p-7, -0x1.17380728f03e7p-3}},
       {{0x1.5754e32418170p-4, -0x1.a6898b12d0b0cp-4, 0x1.093b4497dd658p-6, -0x1.2688bb4192f9ep-4, -0x1.6c80a8a2be0d1p-6, -0x1.022487b2feeb3p-3, -0x1.8a5b57b157e57p-7, 0x1.e5772b50f7f98p-7}},
       {{0x1.01d1773d5e4d7p-2, -0x1.325a1b8e562f9p-4, -0x1.05ead83b919fap-5, -0x1.d5825fd8157b4p-4, -0x1.a1e8265c8bad5p-4, -0x1.590e7aad1482dp-4, 0x1.714d256ca68d3p-5, 0x1.27d868c7fc133p-7}}}}},
    {"Adam",
     {{{{-0x1.7184b4a628682p-1, -0x1.68c045ac3b6d1p-2, -0x1.5aa79c0e11fadp-6, 0x1.92bdeaafd54f9p-2, 0x1.70eacde4766f3p-1, -0x1.e69ccc8640a03p-2, 0x1.c19c8173a904dp-3, -0x1.d9d22f549baa5p-2}},
       {{-0x1.f6cfba42cf011p-2, -0x1.53431b06d538bp-2, -0x1.3ca9bad2bfa5dp-6, 0x1.13696df473c04p-2, 0x1.ec64da7fba1f8p-2, -0x1.4f03a6d3b9056p-2, 0x1.104b258fff76bp-8, -0x1.8c808a8823ed5p-3}},
       {{0x1.197a62bca3b1dp-2, -0x1.27141d22d08a9p-4, -0x1.8e6b0d19ea935p-5, -0x1.dfa50bc757845p-4, -0x1.9872b13f003e3p-4, -0x1.450b8ade10d49p-4, 0x1.994d35eea62bep-5, 0x1.e937f3efc4a9dp-8}},
       {{0x1.3dd5691897f01p-2, -0x1.24b32182f2d1fp-4, -0x1.64d757a487af7p-4, -0x1.e25e3b38e74b5p-4, -0x1.415248b6afdc3p-4, -0x1.412b79ac8aec6p-4, 0x1.aba3403e81e38p-5, 0x1.dccd250049b81p-8}}}}},
    {"Adam, amsgrad",
     {{{{-0x1.7232119c5d418p-1, -0x1.6a9c9fbcd44a9p-2, -0x1.2f7d4ec9670a0p-6, 0x1.90d5c55417d29p-2, 0x1.7193378fcf436p-1, -0x1.e73fb3b70aed4p-2, 0x1.c415464c4f0acp-3, -0x1.d9b311cc43eb4p-2}},
       {{-0x1.027edf823a4d2p-1, -0x1.528b8f5dbd3b0p-2, -0x1.88ec39b0dc68ep-7, 0x1.1796bb4828254p-2, 0x1.feb34c75631eep-2, -0x1.5def7e54ab3e7p-2, 0x1.8c438bcaa6d00p-6, -0x1.b32f9e78d0923p-3}},
       {{0x1.6f0c65dd50cf4p-3, -0x1.57d062b3a4294p-4, -0x1.5ad506352ffe3p-7, -0x1.9044733a9fefap-4, -0x1.4e3abd98d3f86p-5, -0x1.a96197d017ecdp-4, 0x1.a98e0e9fe9bafp-8, 0x1.a13c78784a5c9p-7}},
       {{0x1.2d741d102e298p-2, -0x1.268787bfc2213p-4, -0x1.1987e9dd6f71ap-4, -0x1.e10350e49f6d1p-4, -0x1.6c067b80bc1b4p-4, -0x1.441a1197ca3c4p-4, 0x1.a3bcdbf3ee1e1p-5, 0x1.e3cc66769947ep-8}}}}},
    {"Adam, one cycle",
     {{{{-0x1.7f69675a239c7p-1, -0x1.7f02edae611e3p-2, -0x1.d0a5648162bccp-11, 0x1.80d3cb0e0f6eep-2, 0x1.7f636787ef6a8p-1, -0x1.fef97803d62eep-2, 0x1.fd71f666970c3p-3, -0x1.fe7e46ae3fc47p-2}},
       {{-0x1.788ed08960a3fp-1, -0x1.7db37f3ac0fcap-2, -0x1.763666f6636ddp-10, 0x1.7d1ab657d3f7bp-2, 0x1.782ab50b46268p-1, -0x1.f5179e6042446p-2, 0x1.e075b5e48de87p-3, -0x1.ed334d7049201p-2}},
       {{0x1.9cec6bcaa00ebp-4, -0x1.8fd68afbd9e19p-4, 0x1.a38625c37f5dap-7, -0x1.464bd5a9fe3e9p-4, 0x1.847546e473fdcp-10, -0x1.fea96f0cd749cp-4, -0x1.6ba05cbd77358p-6, 0x1.f6f1f2ec8d966p-7}},
       {{0x1.1c22679b22943p-2, -0x1.2de4f8e29525bp-4, -0x1.a3b1bddfe7228p-5, -0x1.e1ab983eadac5p-4, -0x1.83c7091ffb5f7p-4, -0x1.509e9a90d3d0bp-4, 0x1.871532501b300p-5, 0x1.0f96141da19a1p-7}}}}},
    {"AdamW",
     {{{{-0x1.7011a5c663ec1p-1, -0x1.678bd4a2587ebp-2, -0x1.5a1d0df028ed3p-6, 0x1.917832083afa4p-2, 0x1.6f7992bcf627bp-1, -0x1.e4fc8e880b966p-2, 0x1.bfc30b06e9c7ep-3, -0x1.d7e209e84dbacp-2}},
       {{-0x1.e08d9bb16505dp-2, -0x1.4b9a3579c1c5cp-2, -0x1.3044694ea0d0ap-6, 0x1.0963f2e489a2dp-2, 0x1.d6e2727755bc5p-2, -0x1.4398a03b4eb36p-2, 0x1.fb1cadd2cec2cp-10, -0x1.776d94f58b003p-3}},
       {{0x1.0f91974d77116p-2, -0x1.25fbc774befd5p-4, -0x1.7aebebe6b3462p-5, -0x1.e2849b65900a6p-4, -0x1.8d669ac624a1dp-4, -0x1.3fcbc20f7db5bp-4, 0x1.87714f97e872bp-5, 0x1.d073a5d802617p-8}},
       {{0x1.3491cacdbb23cp-2, -0x1.248f0553a0bb3p-4, -0x1.4ad67883c61b3p-4, -0x1.e4bd34922f8b2p-4, -0x1.4908572e37529p-4, -0x1.40ea677d9b533p-4, 0x1.9f45c66b7b3fep-5, 0x1.dd455da8713c1p-8}}}}},
    {"AdamW, amsgrad",
     {{{{-0x1.70bea1cfebc4cp-1, -0x1.6968afd3fcfa6p-2, -0x1.2ef8c57387658p-6, 0x1.8f8e40d48c72ap-2, 0x1.7021eae907033p-1, -0x1.e59c975d98f66p-2, 0x1.c23d0f941da75p-3, -0x1.d7c278cc48d06p-2}},
       {{-0x1.eef610bb18076p-2, -0x1.4ada9d6ac4517p-2, -0x1.772757fcbf2bep-7, 0x1.0d5f8e733a8d7p-2, 0x1.e9ecdce5dc1e0p-2, -0x1.525a22bb476b6p-2, 0x1.6f00f5e8e622ap-6, -0x1.9ee8ee9433648p-3}},
       {{0x1.6987032bb193dp-3, -0x1.46000acbaa3e6p-4, -0x1.61c2747ece4b1p-7, -0x1.a54d1243fbd8cp-4, -0x1.9bee91445df79p-5, -0x1.7660c2e222d93p-4, 0x1.8f80cfed88e2ap-7, 0x1.37117fd8a54a3p-7}},
       {{0x1.00fc61e88cec4p-2, -0x1.20f8bcc29546bp-4, -0x1.84670e6656d90p-5, -0x1.e1770c768eb8ep-4, -0x1.580aaed6cac38p-4, -0x1.2be66b228bcc4p-4, 0x1.58ed2662a9233p-5, 0x1.6d879313bb5c2p-8}}}}},
    {"Adamax",
     {{{{-0x1.74b5837d2f162p-1, -0x1.6a8fb20cff33bp-2, -0x1.19c7a7ed84fafp-6, 0x1.939532002f2c7p-2, 0x1.7446bafb3c3aap-1, -0x1.eb19ead18f105p-2, 0x1.cfcba9dfbab0bp-3, -0x1.e2ba800a16772p-2}},
       {{-0x1.281d3aa15d183p-1, -0x1.62e0b531e2f46p-2, -0x1.273c099d3ec9ep-6, 0x1.5337c47e7c72dp-2, 0x1.255f46594cb72p-1, -0x1.9de198edfebdap-2, 0x1.6c7154d9d2352p-4, -0x1.383cfdd46d15bp-2}},
       {{0x1.810367b8f8fc8p-4, -0x1.c20827a01f9cfp-4, 0x1.25554a14d90dep-8, -0x1.b400f48af7ccdp-5, 0x1.ab16360e09b83p-6, -0x1.413bec6f30907p-3, -0x1.fc391eb6bf6abp-6, 0x1.3fc3c32675a77p-6}},
       {{0x1.2e3e3c406fb5ap-2, -0x1.28cfdc0038d8ap-4, -0x1.1d14e73ac44bfp-4, -0x1.dd8ab81eb8272p-4, -0x1.68b1d3d60c1a6p-4, -0x1.49e89e0333591p-4, 0x1.a18584d10cc60p-5, 0x1.fa8130e1a0ec5p-8}}}}},
    {"NAdam",
     {{{{-0x1.75b875b6e2089p-1, -0x1.77e53ef12b73ep-2, -0x1.fcbdd53f38b20p-9, 0x1.8231d80df86adp-2, 0x1.7502736e8af0ep-1, -0x1.eb72a11c4a626p-2, 0x1.d5332c37348ddp-3, -0x1.db706f62ff9fbp-2}},
       {{-0x1.0ccbb716e5dfep-1, -0x1.59e4adefb1334p-2, 0x1.f34562c346765p-11, 0x1.164ec2fce9124p-2, 0x1.087f4d6af20f7p-1, -0x1.62eabcc68c011p-2, 0x1.50d3f704023fcp-5, -0x1.cdf580428927ep-3}},
       {{0x1.0f7c899f964f0p-2, -0x1.212df8640e3c1p-4, -0x1.5883ff10c8208p-5, -0x1.dad29697bc933p-4, -0x1.974959f75a7e6p-4, -0x1.44bb471fe45e2p-4, 0x1.94f5eb2504fe9p-5, 0x1.11c47d96df046p-7}},
       {{0x1.3f1846882cf15p-2, -0x1.1b338c3ca48fdp-4, -0x1.64c892acb2aacp-4, -0x1.dfffff8280c27p-4, -0x1.4763b75f90229p-4, -0x1.3bbba4e01e141p-4, 0x1.c4aa0196337e6p-5, 0x1.05f5b50d3612dp-7}}}}},
    {"NAdam, decoupled",
     {{{{-0x1.744390dfbcf13p-1, -0x1.76a436cfde175p-2, -0x1.fba2107c63a1bp-9, 0x1.80e4340d3cecap-2, 0x1.738fe00af9e99p-1, -0x1.e9c1360256c51p-2, 0x1.d35b6e08e61eep-3, -0x1.d97a1b70a3f10p-2}},
       {{-0x1.016fed2534b10p-1, -0x1.51b22a7c0ca8ep-2, 0x1.0f18720fc1122p-10, 0x1.0c11b88b845e4p-2, 0x1.fb0ea5cd40657p-2, -0x1.56e465698fa22p-2, 0x1.3ab2f33ad09e5p-5, -0x1.b82865015c09cp-3}},
       {{0x1.07b6a21a089acp-2, -0x1.1fb1f6865a6e7p-4, -0x1.501ee42d41e49p-5, -0x1.decad80ee95e3p-4, -0x1.8dad12f4e9059p-4, -0x1.3ddb2223ce3c1p-4, 0x1.88a13dfc49b63p-5, 0x1.feffc9b549b97p-8}},
       {{0x1.34b454ee95f09p-2, -0x1.1c6909bd57ce0p-4, -0x1.481b991303e18p-4, -0x1.e2d9a6f2288e3p-4, -0x1.4e1459b77b690p-4, -0x1.3bf6655befccfp-4, 0x1.b3162ad7b6110p-5, 0x1.011c627321702p-7}}}}},
    {"RAdam",
     {{{{-0x1.6b2bc5885f4d3p-1, -0x1.7a8a325ae6c3bp-2, -0x1.db47f0ad86450p-6, 0x1.838f44044632ap-2, 0x1.6e54a4154f091p-1, -0x1.f980319a4f12dp-2, 0x1.b961765ceff4bp-3, -0x1.ecec8a9824bf0p-2}},
       {{-0x1.5b18b4d2d63f8p-1, -0x1.78955165e68fbp-2, -0x1.fc111f9a34a0dp-6, 0x1.7b2e370b46528p-2, 0x1.5e7d618d102dap-1, -0x1.e6fc84104f21bp-2, 0x1.7cbe722cb056ap-3, -0x1.cc6713651c2d6p-2}},
       {{-0x1.24291bbdfdc54p-3, -0x1.7dbd67281850fp-3, 0x1.72a9d242b4446p-7, 0x1.56c6ab1b627bfp-5, 0x1.6ba40a7729df8p-3, -0x1.a1d6303c8d3c5p-3, -0x1.39fee9fc701cdp-4, -0x1.170f7b6e27ee9p-6}},
       {{0x1.1cb0403d5cebdp-2, -0x1.28f129779d04cp-4, -0x1.af7220668e800p-5, -0x1.de16f19d25878p-4, -0x1.8a57d1792ec4ep-4, -0x1.48291b58f6bd0p-4, 0x1.955c66243be4dp-5, 0x1.f366fb382dbaep-8}}}}},
    {"RAdam, decoupled",
     {{{{-0x1.6a6ed8b75401ap-1, -0x1.79995a9d6d718p-2, -0x1.b04164377d71fp-6, 0x1.81a62ea5d65b5p-2, 0x1.6d6efdadbec64p-1, -0x1.f771d015df275p-2, 0x1.b9d780785abcbp-3, -0x1.eab087be74a65p-2}},
       {{-0x1.15f437bafaf96p-1, -0x1.60b2d2209815bp-2, -0x1.573edf8ca1114p-6, 0x1.3819a53345ddcp-2, 0x1.163333966fc27p-1, -0x1.87c6b277f067bp-2, 0x1.32fcfa85d76a5p-4, -0x1.323815b688563p-2}},
       {{0x1.3ea4ea59568bep-2, -0x1.20e02b4140fb2p-4, -0x1.66d7c90c9d3aap-4, -0x1.e401855ef8bf9p-4, -0x1.455ba621868c2p-4, -0x1.3e88f31a9b3d6p-4, 0x1.b20644dbb9109p-5, 0x1.da679143d3d27p-8}},
       {{0x1.3ec5c6b355beep-2, -0x1.20dd5b852a38ap-4, -0x1.6793f7b12cb43p-4, -0x1.e404dcd6349b7p-4, -0x1.44a0b5bb746ebp-4, -0x1.3e869c3d609a4p-4, 0x1.b1a87f9774c05p-5, 0x1.da63d2a1fc182p-8}}}}},
    {"RmsProp",
     {{{{-0x1.56bb95acee831p-1, -0x1.6542a3765e58ap-2, -0x1.0c79432a546e0p-6, 0x1.8721f82ff41dfp-2, 0x1.5455387d3a674p-1, -0x1.af977807b76adp-2, 0x1.597117de649e4p-3, -0x1.61a76e6d2fa8ap-2}},
       {{-0x1.adf89a8e0faa5p-2, -0x1.3777238068719p-2, -0x1.0b7ca07960447p-7, 0x1.b5dd61754173dp-3, 0x1.a6f9e6d72a43ep-2, -0x1.32d267e09f2bfp-2, -0x1.52b28ed312de7p-6, -0x1.c858ef2d00db1p-4}},
       {{0x1.fa7b6bb59dfc3p-3, -0x1.2d8e2e8d42c98p-4, -0x1.cc8d13c6af83cp-6, -0x1.cfbd2b98d047cp-4, -0x1.a7e23dc44682cp-4, -0x1.5276ab19543a7p-4, 0x1.73298e8584552p-5, 0x1.33fea6fc7475ep-7}},
       {{0x1.49917d93b44d5p-2, -0x1.1b61fc4b6b2a2p-4, -0x1.6fc2ca1d9b874p-4, -0x1.e6bac4745d119p-4, -0x1.480893261dc68p-4, -0x1.3af891b84f985p-4, 0x1.d77682f9b625cp-5, 0x1.089b985082e94p-7}}}}},
    {"RmsProp, centered",
     {{{{-0x1.774edb725eacep-1, -0x1.71d373f24defdp-2, -0x1.09eeaaa4db725p-7, 0x1.89bca2d2a411bp-2, 0x1.76a5628e403e9p-1, -0x1.edf3cdd82d970p-2, 0x1.da5de13737e9ep-3, -0x1.dd948acd6eaf7p-2}},
       {{-0x1.323d22dc5fcc0p-1, -0x1.68f00f7dce0dfp-2, -0x1.e797e76ba9885p-9, 0x1.4f33fe0c4610ep-2, 0x1.29f71f8f952dfp-1, -0x1.a290cc26a2376p-2, 0x1.95a390dfd13bap-4, -0x1.1e6af76c8ed18p-2}},
       {{0x1.1b64cd53f18dep-2, -0x1.45a190a7e1f2bp-4, -0x1.af765023445a0p-5, -0x1.bce46132dbde3p-4, -0x1.a709bd49fe285p-4, -0x1.4fdd056e5c25bp-4, 0x1.84fb0bf4e3e8cp-5, 0x1.66b2d1b813766p-8}},
       {{0x1.3ca5f679d68f4p-2, -0x1.27962e2907e88p-4, -0x1.6f5979aed9723p-4, -0x1.e2178efb1c6d0p-4, -0x1.4da0d32540781p-4, -0x1.34fd02b771a49p-4, 0x1.c9991bf483427p-5, 0x1.1217b20b73aa8p-8}}}}},
    {"Asgd",
     {{{{-0x1.2a8a80ceb5da3p-1, -0x1.7f191d94adfc6p-2, -0x1.296ca8f8f4fcdp-8, 0x1.72882982726bcp-2, 0x1.3798de3b0d865p-1, -0x1.c82e09c1ae28cp-2, 0x1.ff8d160eb1e7dp-4, -0x1.8a0358562bc37p-2}},
       {{0x1.7725eea1cbcd6p-6, -0x1.35f3cbb28175ap-2, -0x1.027ef5a873ccbp-7, 0x1.9a3dec40c702bp-3, 0x1.26d6b413be484p-3, -0x1.1479fab725f86p-2, -0x1.a93b1e0a1f7b4p-5, -0x1.0b6c12627392ap-5}},
       {{0x1.3fd3d0f3083c7p-2, -0x1.29a030a84dceep-4, -0x1.5fd8b3cf1676dp-4, -0x1.cd016af414db6p-4, -0x1.5575f74a5a7e6p-4, -0x1.49e3034446291p-4, 0x1.e89558380f75fp-5, 0x1.1941686c22198p-7}},
       {{0x1.402135a66a3dep-2, -0x1.1abdbeec67064p-4, -0x1.61b7d7578b817p-4, -0x1.e1426cf36cc69p-4, -0x1.53a2e2cb5728fp-4, -0x1.39033cb346dbep-4, 0x1.e71cba1314c8ap-5, 0x1.042d6f934dbbbp-7}}}}},
    {"Rprop",
     {{{{-0x1.7ced916872b02p-1, -0x1.6dc5d63886594p-2, -0x1.46dc5d638865ap-5, 0x1.923a29c779a6cp-2, 0x1.762b6ae7d566dp-1, -0x1.e31f8a0902de0p-2, 0x1.c63f141205bbfp-3, -0x1.c0a5269595fedp-2}},
       {{-0x1.7c58628f0dc6dp-1, -0x1.6c41f6034cc78p-2, -0x1.baf82b88db41fp-4, 0x1.8d3a622e4585ap-2, 0x1.62438e8f9e24ap-1, -0x1.cd1c363be67bdp-2, 0x1.514ce58bc1177p-3, -0x1.104ad1f005412p-3}},
       {{-0x1.7c58628f0dc6dp-1, -0x1.6c41f6034cc78p-2, -0x1.c2579b5afb31bp-4, 0x1.8978ef6360d8cp-2, 0x1.5ffff68b2fef4p-1, -0x1.cb445a475e7d1p-2, 0x1.4731d8bc27310p-3, -0x1.0c9b1a06f543ap-3}},
       {{-0x1.7c58628f0dc6dp-1, -0x1.6c41f6034cc78p-2, -0x1.cea155b9306bfp-4, 0x1.835800d64fe6cp-2, 0x1.5cef7f44a7764p-1, -0x1.c831ebafd129dp-2, 0x1.3aeffba20543ap-3, -0x1.06763cd7da9d2p-3}}}}},
    {"Adafactor",
     {{{{-0x1.7320276f811ddp-1, -0x1.72aeace8405b5p-2, -0x1.359491a1cd610p-10, 0x1.8037abc9248f0p-2, 0x1.72bdd4866c86cp-1, -0x1.e826c2872d7bcp-2, 0x1.dc489c777327ep-3, -0x1.dd387946d46f3p-2}},
       {{-0x1.06899ecf653a1p-1, -0x1.44e8fba101a75p-2, -0x1.9c21bf5918794p-6, 0x1.342ac5de9f9fap-2, 0x1.0ab5e536733b7p-1, -0x1.57b4138f518a0p-2, 0x1.b3e7374ed4066p-4, -0x1.3116b507e9cc8p-2}},
       {{0x1.95b91cfa8a5d5p-5, -0x1.bad7b0d4cd4fcp-4, 0x1.9509d0b886b46p-11, -0x1.653980b0200bcp-5, -0x1.23d43c39873d4p-9, -0x1.5112daba8d0b2p-4, -0x1.f37409f33ec94p-8, -0x1.ddc49cab09178p-6}},
       {{0x1.b13ab5ace693bp-3, -0x1.08f40a53656dcp-4, -0x1.689457ef4b5c9p-6, -0x1.c15326c87a872p-4, -0x1.3ef06c6c57523p-4, -0x1.090e0abe8b006p-4, 0x1.e8279fd0c41dfp-7, -0x1.230af5ec97ba9p-7}}}}},
    {"Adafactor, options",
     {{{{-0x1.61d4de7184289p-1, -0x1.6d97bb74724e2p-2, 0x1.a9ee50aacb547p-8, 0x1.81540588b4a8ap-2, 0x1.61a48b2097d17p-1, -0x1.c4f2d9a9c3ff0p-2, 0x1.a79ece9850c23p-3, -0x1.b1d5f919dd8d8p-2}},
       {{-0x1.34ef0fb78073ap-2, -0x1.36b06d7ecd612p-2, 0x1.8ce5cca7f29a3p-6, 0x1.725f2f1ba5c7dp-3, 0x1.3f16013e593a1p-2, -0x1.7e7c0014d28ebp-3, 0x1.7b3a8de286ad7p-7, -0x1.6499cdba43080p-3}},
       {{0x1.3fbf7b15f4a5cp-2, -0x1.240f80d48147ap-4, -0x1.4bdf5947d4b23p-4, -0x1.e0319f56f2e0dp-4, -0x1.f05c1d01b45fdp-5, -0x1.1dad0250070b7p-4, 0x1.73019d24af98cp-7, -0x1.037fbcc3a6bc9p-7}},
       {{0x1.481f5adf24dd9p-2, -0x1.21253cc175271p-4, -0x1.6edf3bb5b59e1p-4, -0x1.e480c0f44c1cfp-4, -0x1.388ef25f221ecp-4, -0x1.398db36d8c6ebp-4, 0x1.a7694f96a3588p-5, 0x1.3666df48d2003p-8}}}}},
    {"Lion",
     {{{{-0x1.7965ee925c80dp-1, -0x1.7f8b081e12386p-2, -0x1.88dcb7973fdfdp-8, 0x1.7f8925141e687p-2, 0x1.7965ee925c80dp-1, -0x1.f93edd21ffb37p-2, 0x1.f31af177defbap-3, -0x1.f31a78bea8cc0p-2}},
       {{-0x1.3e56402ae2321p-1, -0x1.7b749c420ce01p-2, -0x1.b7502375560b5p-5, 0x1.507d7849f1866p-2, 0x1.3e56402ae2321p-1, -0x1.91fa742e53ee8p-2, 0x1.11b7656ac435dp-3, -0x1.7fba59a12afc5p-2}},
       {{0x1.dcf4a2794c687p-2, -0x1.3e58e30b91c00p-3, -0x1.fee912d288262p-5, -0x1.8b1f513fac9bbp-5, -0x1.0101dce8254cdp-2, -0x1.b58a555d8942bp-4, 0x1.d4b83f459f8cep-3, -0x1.15a266f43a188p-6}},
       {{0x1.3d882cb50c417p-2, -0x1.07fb3b62975a2p-4, -0x1.5fe65a2b8faf2p-4, -0x1.dfab5641ca51dp-4, -0x1.636049b3a0cccp-4, -0x1.3110e1b9500e0p-4, 0x1.f6fa402e4b585p-5, 0x1.80a29f2f0dffdp-8}}}}},
    {"Lamb",
     {{{{-0x1.7468f2f50b923p-1, -0x1.706ff570027e8p-2, -0x1.ebffcb0dd2e93p-7, 0x1.8aca027b51e61p-2, 0x1.73c4cfcdbae1ep-1, -0x1.ef12e3381e3cfp-2, 0x1.e3c4e259d2e28p-3, -0x1.ee7e35054b49dp-2}},
       {{-0x1.fd21ee634dd79p-2, -0x1.5da23ab5a9584p-2, -0x1.29f3c72cf9b07p-6, 0x1.2828bd6af7c2dp-2, 0x1.f21d3b8de9631p-2, -0x1.50ec60cfab311p-2, 0x1.11ccbfe163b36p-3, -0x1.6b6d8cf85f3d5p-2}},
       {{0x1.20ce5b5e65027p-2, -0x1.22c921fb150eep-4, -0x1.a095ba091bc08p-5, -0x1.e8163f4c1b55fp-4, -0x1.59143e40f3015p-4, -0x1.0a3675b91680bp-4, 0x1.3a8ec44b80d67p-8, -0x1.f67a606bcd493p-7}},
       {{0x1.425de88be5a8fp-2, -0x1.13797f9dfb5f7p-4, -0x1.6ed612dad464ap-4, -0x1.e5b86614bd7d9p-4, -0x1.355b13423bc0fp-4, -0x1.3871c8e151bd2p-4, 0x1.a57a36fc87691p-5, 0x1.b1fe5bd1b517fp-8}}}}},
    {"Lars",
     {{{{-0x1.633bf76539f5cp-1, -0x1.5b5c925ce498ap-2, -0x1.82bde3aa8f732p-5, 0x1.8af04ba1f46e4p-2, 0x1.5e3e665bf5de9p-1, -0x1.fc11a53277c85p-2, 0x1.a2cad96172e64p-3, -0x1.c29ca5c5ebec8p-2}},
       {{0x1.3e3bce862b48bp-2, -0x1.5012a6e9f98d4p-5, -0x1.03621657b5b1cp-3, 0x1.a40f518c2d3c6p-4, -0x1.a1607e16fb753p-3, -0x1.272de44925506p-3, -0x1.13953a891b813p-5, 0x1.c3a9fe5441c2ap-4}},
       {{0x1.452f164d852f7p-2, -0x1.6798df77f5b96p-3, -0x1.b3805d9f4ac46p-4, -0x1.e27df1552fd14p-4, -0x1.2e5b637b4a3cep-3, -0x1.866400aa0f0e5p-4, 0x1.2c0eba1ee771bp-3, -0x1.8c9e9f1adbc4cp-4}},
       {{0x1.452f16837e568p-2, -0x1.6798ddffaa71bp-3, -0x1.b3805b6b13c90p-4, -0x1.e27defdcf6972p-4, -0x1.2e5b64db6ff3dp-3, -0x1.8663fd7b42b8fp-4, 0x1.2c0ebb571faa5p-3, -0x1.8c9ea1f34d771p-4}}}}},
    {"Eg",
     {{{{0x1.6dca9b32e3b53p-3, 0x1.2f07db74b3f4bp-3, 0x1.fb8de5ea13addp-4, 0x1.963470eab2d73p-4, 0x1.f387762ca1416p-3, 0x1.a6c4e7c163d26p-3, 0x1.68bc11e99f6b4p-2, 0x1.4ba1f70b304a7p-1}},
       {{0x1.37b417ff319d6p-1, 0x1.55da863b4570dp-2, 0x1.661619d721672p-7, 0x1.1802c07269de7p-7, 0x1.1931b792fca02p-6, 0x1.539677adb3017p-6, 0x1.143eed992ca85p-1, 0x1.d78224cda6af6p-2}},
       {{0x1.4923429ac2437p-1, 0x1.2ca773f8c854fp-2, 0x1.6ebaa0ebc421ep-20, 0x1.4e2b02e61858ap-23, 0x1.95ba6678dbb60p-6, 0x1.3dafd25128b4fp-5, 0x1.03c3790bd8f1bp-1, 0x1.f8790de84e1cbp-2}},
       {{0x1.4922e33bf7f68p-1, 0x1.2ca6ea3d3c445p-2, 0x1.eb84fd41cde61p-42, 0x1.df30abda26376p-50, 0x1.960aeb6a31b2fp-6, 0x1.3d9504a176319p-5, 0x1.03c2dfc3f6da7p-1, 0x1.f87a4078124b2p-2}}}}},
};

/// Of the parameters that Adam trains; for Asgd, its own.
inline const std::vector<OptimizerFigures> average_figures{
    {"Ema",
     {{{{-0x1.7ab223afaff64p-1, -0x1.756358e1fd675p-2, -0x1.517f9a292954ep-7, 0x1.8a8bf9087c4bcp-2, 0x1.7aaf6003400efp-1, -0x1.f56b5e3fdc675p-2, 0x1.eaab7970fccfbp-3, -0x1.f533f809bde63p-2}},
       {{-0x1.63dc22836d802p-1, -0x1.6e8da8f92c58ap-2, -0x1.e283e001e8707p-7, 0x1.79d40edaf16c0p-2, 0x1.62c313911c11fp-1, -0x1.d6690e1b54891p-2, 0x1.8fa2fd9cd4f88p-3, -0x1.bca6810a1bc56p-2}},
       {{0x1.6d4b1fc780aedp-3, -0x1.75daa2a22d880p-4, -0x1.67afb9b73246cp-6, -0x1.688d72c9ba803p-4, -0x1.8edb71635fe16p-5, -0x1.ac1365c755509p-4, 0x1.043b1f9485625p-5, -0x1.2b5f4e17f9920p-8}},
       {{0x1.3d078d8f888f9p-2, -0x1.26dd2a84d363ap-4, -0x1.614ae85751467p-4, -0x1.e3ee70a4293d8p-4, -0x1.428677e388f58p-4, -0x1.42d7aef0300bcp-4, 0x1.aa62ca3311397p-5, 0x1.cd914f8126a5bp-8}}}}},
    {"Swa",
     {{{{-0x1.763ec7e847bf4p-1, -0x1.6c6013f5ac20dp-2, -0x1.1fa07d981ced6p-6, 0x1.91fda0906965ep-2, 0x1.75f94ea52cf5cp-1, -0x1.ed2c52918cd88p-2, 0x1.d61db0647c127p-3, -0x1.e7bdc05d1b240p-2}},
       {{-0x1.39bdf6faa741bp-1, -0x1.60b08cd42f65cp-2, -0x1.8eaf935998798p-6, 0x1.5d5b4fd76b04dp-2, 0x1.369c135967a07p-1, -0x1.9cc2be45abd3cp-2, 0x1.cd4506c26ac1cp-4, -0x1.53a5fa12d740ep-2}},
       {{-0x1.d37c947531f03p-7, -0x1.2d7c0264d7a1fp-3, -0x1.9c8013573cb53p-8, -0x1.14909a3e3455bp-8, 0x1.6f1e4c4ceaafap-4, -0x1.4f44c110505dcp-3, -0x1.9dec05cff23a1p-13, -0x1.2e61a232f7403p-5}},
       {{0x1.69c861d21ef15p-3, -0x1.a22301c5dc48cp-4, -0x1.9a8cb89a8cb08p-5, -0x1.294530f597e6ap-4, -0x1.d2c8a61a3b60bp-7, -0x1.cde749d6c5c41p-4, 0x1.feea63f3e9e89p-6, -0x1.584f6ca77b75cp-7}}}}},
    {"Asgd",
     {{{{0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0}},
       {{0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0}},
       {{0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0, 0x0.0p+0}},
       {{0x1.3db65e8b629bbp-2, -0x1.21e5c98bdcdd1p-4, -0x1.69921212f6238p-4, -0x1.e64c154ff2a0cp-4, -0x1.58d22e04b066cp-4, -0x1.3fdc1dfeef02bp-4, 0x1.b7152a9cb8815p-5, 0x1.d7941d5f281bap-8}}}}},
};

/// After each of four steps of at most five directions; and the loss before it.
inline const std::vector<LbfgsFigures> lbfgs_figures{
    {true, 17,
     {{0x1.f938d48e00000p-1, 0x1.e255003429a84p-5, 0x1.d8051d4ef8726p-5, 0x1.d8051a7a30c8dp-5}},
     {{{{0x1.5c9044dfaf980p-2, -0x1.bdde0cdd5b0fcp-4, -0x1.69d780b6757e5p-4, -0x1.84d4bc8ac9a44p-4, -0x1.ba0692bf21599p-4, -0x1.0eb00761ddd66p-3, 0x1.eeeb578207febp-5, -0x1.0a58a910e2930p-9}},
       {{0x1.4578665c404f6p-2, -0x1.294f4e5621ab7p-4, -0x1.7941136dcd43dp-4, -0x1.e9198f3fcaabep-4, -0x1.3e6f3f6b85c3cp-4, -0x1.471607db8f637p-4, 0x1.b57b95f8c27a0p-5, 0x1.f85adee172099p-8}},
       {{0x1.459144a60dc58p-2, -0x1.298a31356bb7ep-4, -0x1.79d5c75a743ffp-4, -0x1.e8ddaa6114bd9p-4, -0x1.3ded436be9cbep-4, -0x1.472084911dd4ep-4, 0x1.b55d05b826d12p-5, 0x1.f720ef713c8d7p-8}},
       {{0x1.459144a60dc58p-2, -0x1.298a31356bb7ep-4, -0x1.79d5c75a743ffp-4, -0x1.e8ddaa6114bd9p-4, -0x1.3ded436be9cbep-4, -0x1.472084911dd4ep-4, 0x1.b55d05b826d12p-5, 0x1.f720ef713c8d7p-8}}}}},
    {false, 20,
     {{0x1.f938d48e00000p-1, 0x1.4d538251b8596p-3, 0x1.f41f1b84034a5p-5, 0x1.d8d12e2326422p-5}},
     {{{{-0x1.5d39169e5d45ep-4, -0x1.1b627f336ef60p-2, -0x1.24621d4626ee7p-6, 0x1.6952627df56d9p-3, 0x1.e2329ce31baecp-3, -0x1.3540a0030df71p-2, 0x1.cbf8641a61b48p-5, -0x1.9d4f2d9392387p-4}},
       {{0x1.0507f8a147602p-2, -0x1.0155e1317c07ep-3, -0x1.49580b8a5bc8dp-4, -0x1.5c970139b667ap-5, -0x1.f45deadc4c169p-6, -0x1.24b48ebf59e5cp-3, 0x1.c1eb9a05a2350p-5, -0x1.6b2a37ccab16dp-8}},
       {{0x1.3c31ac5aef4d5p-2, -0x1.53082b0358206p-4, -0x1.75370265ae4b3p-4, -0x1.ad362c4650a48p-4, -0x1.1fc3a68c7fa3dp-4, -0x1.7944f086a19cbp-4, 0x1.b96fd287d06cbp-5, 0x1.7a546a03ebe81p-8}},
       {{0x1.442f1aae7ff1ap-2, -0x1.2fed086d0bc73p-4, -0x1.795e0eed1d278p-4, -0x1.df8bada3ae8a2p-4, -0x1.38ec884351539p-4, -0x1.4ece1ad116767p-4, 0x1.b665c2ca2dde9p-5, 0x1.e7d292019e208p-8}}}}},
};

inline const std::vector<int> schedule_steps{0, 1, 2, 3, 6, 7, 9, 10, 11, 20, 29, 30, 31, 49, 50, 69, 70, 80, 99, 149, 150, 199, 300, 301, 400, 598, 700, 999};
inline const std::vector<ScheduleFigures> schedule_figures{
    {"step_decay",
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.9eb851eb851ecp-1, 0x1.4fec56d5cfaaep-1, 0x1.4fec56d5cfaaep-1, 0x1.4fec56d5cfaaep-1, 0x1.e9c6a99d1cdc0p-2, 0x1.e9c6a99d1cdc0p-2, 0x1.8cb7f4e838a80p-2, 0x1.650bf60432fdap-2, 0x1.4157909d61178p-2, 0x1.d484471283d4fp-3, 0x1.c02e203e197fcp-4, 0x1.c02e203e197fcp-4, 0x1.acb9f41a886adp-5, 0x1.8850bc9479cfdp-7, 0x1.61157685a0d4ap-7, 0x1.4318d6e1f2104p-9, 0x1.0e8c1c2519be1p-13, 0x1.bda056ed49410p-16, 0x1.557507bd5b72ep-22}},
    {"multi_step",
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p-1, 0x1.0000000000000p-1, 0x1.0000000000000p-1, 0x1.0000000000000p-1, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-3, 0x1.0000000000000p-4, 0x1.0000000000000p-4, 0x1.0000000000000p-4, 0x1.0000000000000p-4}},
    {"exponential",
     {0x1.0000000000000p+0, 0x1.fae147ae147aep-1, 0x1.f5cfaacd9e83ep-1, 0x1.f0cb07d0aed99p-1, 0x1.e209afa7055ecp-1, 0x1.dd37ab55fda2fp-1, 0x1.d3b8885c8c60bp-1, 0x1.cf0b2ad680bbep-1, 0x1.ca69c691cc3f2p-1, 0x1.a2c4b2b84da0fp-1, 0x1.7e8d573b46ac3p-1, 0x1.7aba01e115537p-1, 0x1.76f0779ed51cdp-1, 0x1.38e45bdba1833p-1, 0x1.35c35af0797f5p-1, 0x1.ffd54742fcc1fp-2, 0x1.fab6fc4f1e11fp-2, 0x1.ca43867d43fa2p-2, 0x1.7a9a67f845204p-2, 0x1.ca1d4999ca8a7p-3, 0x1.c58883bea73c4p-3, 0x1.15297871292f9p-3, 0x1.91be35867d1d0p-5, 0x1.8db9bf3ae761dp-5, 0x1.261a13d0bb2e0p-6, 0x1.41a13b4c60c43p-9, 0x1.cd895de2919a9p-11, 0x1.6dce02098482ap-15}},
    {"polynomial",
     {0x1.0000000000000p+0, 0x1.fe8cd8939c1dep-1, 0x1.fd1a201ff0df0p-1, 0x1.fba7d6b33c9bdp-1, 0x1.f7539525d068ap-1, 0x1.f5e3086406b80p-1, 0x1.f3033cdad4dabp-1, 0x1.f193fe3051a54p-1, 0x1.f0252effd876ep-1, 0x1.e3538826ef3e9p-1, 0x1.d6a5556a29b2dp-1, 0x1.d53ed735c0f6ep-1, 0x1.d3d8c9a42abdap-1, 0x1.baf7567d78d7fp-1, 0x1.b999b070996edp-1, 0x1.9ffb247b9b4d5p-1, 0x1.9ea66f67dd676p-1, 0x1.91702324d77e7p-1, 0x1.78d2977a58866p-1, 0x1.3b25974b2acaep-1, 0x1.39f5b8881c263p-1, 0x1.0215137ec144cp-1, 0x1.3b2c47bff832ap-2, 0x1.39639a5a6aee3p-2, 0x1.3c640a29f9099p-3, 0x1.01f5f92fcc3fep-14, 0x0.0p+0, 0x0.0p+0}},
    {"linear",
     {0x1.999999999999ap-4, 0x1.e353f7ced9168p-4, 0x1.16872b020c49cp-3, 0x1.3b645a1cac083p-3, 0x1.a9fbe76c8b439p-3, 0x1.ced916872b020p-3, 0x1.0c49ba5e353f7p-2, 0x1.1eb851eb851ebp-2, 0x1.3126e978d4fdfp-2, 0x1.d70a3d70a3d71p-2, 0x1.3e76c8b439582p-1, 0x1.47ae147ae147cp-1, 0x1.50e5604189376p-1, 0x1.f6c8b43958106p-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1}},
    {"cosine_restarts",
     {0x1.0000000000000p+0, 0x1.febce363c9519p-1, 0x1.faf717d1d4d06p-1, 0x1.f4b9322452640p-1, 0x1.d3ff5d2d12e18p-1, 0x1.c4d210bb0e2a4p-1, 0x1.a10695b9b3577p-1, 0x1.8cccccccccccdp-1, 0x1.774fe743af93cp-1, 0x1.4cccccccccccfp-2, 0x1.a3b27e7b4f0cep-4, 0x1.0000000000000p+0, 0x1.febce363c9519p-1, 0x1.77c697df073f0p-2, 0x1.4cccccccccccfp-2, 0x1.a10695b9b3577p-1, 0x1.8cccccccccccdp-1, 0x1.4cccccccccccfp-2, 0x1.a10695b9b3577p-1, 0x1.a3b27e7b4f0cep-4, 0x1.0000000000000p+0, 0x1.77c697df073f0p-2, 0x1.0000000000000p+0, 0x1.febce363c9519p-1, 0x1.8cccccccccccdp-1, 0x1.c1e0db0af3167p-4, 0x1.8cccccccccccdp-1, 0x1.a10695b9b3577p-1}},
    {"cosine_restarts, growing",
     {0x1.0000000000000p+0, 0x1.f418d15f3a860p-1, 0x1.d18d8d04e9436p-1, 0x1.9bbfd6eeaf153p-1, 0x1.834b4c5c93dfap-2, 0x1.f7670aabaa11cp-3, 0x1.2c0641d2f89d1p-4, 0x1.0000000000000p+0, 0x1.fd017c6638c79p-1, 0x1.0cccccccccccdp-1, 0x1.c981d3360d21ap-5, 0x1.0000000000000p+0, 0x1.ff40135ebd454p-1, 0x1.1fe199bc837a7p-1, 0x1.0cccccccccccdp-1, 0x1.a59863adc5468p-5, 0x1.0000000000000p+0, 0x1.ed7cccf38031bp-1, 0x1.729e3867a1a5ep-1, 0x1.9c9997e869f85p-5, 0x1.0000000000000p+0, 0x1.97dbdc68c0c07p-1, 0x1.e45e4a041a5fap-5, 0x1.d63307d4daa37p-5, 0x1.a7159e4cabaf9p-1, 0x1.2c0641d2f89d1p-4, 0x1.f1c8948c1e679p-1, 0x1.a5bb5e9255c8ap-2}},
    {"one_cycle",
     {0x1.47ae147ae1480p-5, 0x1.47e5a4e5bf6c0p-5, 0x1.488c5494596d0p-5, 0x1.49a21ed0b9620p-5, 0x1.4f7dbea4ea910p-5, 0x1.524f85341fa70p-5, 0x1.593f768fc7d90p-5, 0x1.5d5d6f2b705c0p-5, 0x1.61e9ebb944b40p-5, 0x1.9e2e44a15d850p-5, 0x1.fccf83266cb70p-5, 0x1.04b4c8f5d7240p-4, 0x1.0b36a3f1cff18p-4, 0x1.a2b3ebdc4eaa8p-4, 0x1.acf80698621f0p-4, 0x1.4924dccc6b1d4p-3, 0x1.5008a38471258p-3, 0x1.993a30c217690p-3, 0x1.1bbe90104a678p-2, 0x1.08f2eb7f9ac67p-1, 0x1.0b87f5c8134e0p-1, 0x1.845fb362661b3p-1, 0x1.ffff570985e63p-1, 0x1.fffd5c26f6a1bp-1, 0x1.e625b643ee3a7p-1, 0x1.3a15eff41f03cp-1, 0x1.8bd52c873c040p-2, 0x1.0c6f7a0b5ed8dp-18}},
    {"one_cycle, three phases",
     {0x1.999999999999ap-4, 0x1.ac1fe74cedbb9p-4, 0x1.bea6350041dd9p-4, 0x1.d12c82b395ff8p-4, 0x1.045fb5e6c932bp-3, 0x1.0da2dcc07343bp-3, 0x1.20292a73c765ap-3, 0x1.296c514d7176ap-3, 0x1.32af78271b87ap-3, 0x1.860bd5ce16207p-3, 0x1.d968337510b94p-3, 0x1.e2ab5a4ebaca4p-3, 0x1.ebee812864db4p-3, 0x1.49539e3b2d068p-2, 0x1.4df531a8020eep-2, 0x1.a5f322bbd1b04p-2, 0x1.aa94b628a6b8cp-2, 0x1.d8e47868f90dap-2, 0x1.187134be64578p-1, 0x1.8c389a5f322bcp-1, 0x1.8e8964159cb00p-1, 0x1.0000000000000p+0, 0x1.16206b07f9d34p-1, 0x1.13cfa1518f4f0p-1, 0x1.9840254b19eddp-4, 0x1.12a82aefba7bep-4, 0x1.9babfe9896826p-5, 0x1.0624dd2f1aa00p-10}},
    {"cyclical",
     {0x1.999999999999ap-4, 0x1.0a3d70a3d70a0p-3, 0x1.47ae147ae1474p-3, 0x1.851eb851eb85ap-3, 0x1.1eb851eb851eap-2, 0x1.3d70a3d70a3d3p-2, 0x1.7ae147ae147b0p-2, 0x1.999999999999ap-2, 0x1.b851eb851eb84p-2, 0x1.6666666666666p-1, 0x1.f0a3d70a3d70bp-1, 0x1.0000000000000p+0, 0x1.f6c8b43958107p-1, 0x1.50e5604189374p-1, 0x1.47ae147ae147bp-1, 0x1.3126e978d4fdep-2, 0x1.1eb851eb851ecp-2, 0x1.999999999999ap-4, 0x1.570a3d70a3d6dp-1, 0x1.3126e978d4fe4p-2, 0x1.1eb851eb851ecp-2, 0x1.ad0e56041893ap-1, 0x1.d70a3d70a3d72p-2, 0x1.c49ba5e353f78p-2, 0x1.999999999999ap-4, 0x1.b645a1cac0835p-1, 0x1.d70a3d70a3d72p-2, 0x1.ad0e56041892ep-1}},
    {"cyclical, halving",
     {0x1.999999999999ap-4, 0x1.f5c28f5c28f57p-4, 0x1.28f5c28f5c28ap-3, 0x1.570a3d70a3d76p-3, 0x1.e147ae147ae12p-3, 0x1.07ae147ae1478p-2, 0x1.35c28f5c28f5ep-2, 0x1.4cccccccccccdp-2, 0x1.63d70a3d70a3cp-2, 0x1.199999999999ap-1, 0x1.8147ae147ae15p-1, 0x1.8cccccccccccdp-1, 0x1.9851eb851eb84p-1, 0x1.9851eb851eb84p-1, 0x1.8cccccccccccdp-1, 0x1.63d70a3d70a3cp-2, 0x1.4cccccccccccdp-2, 0x1.999999999999ap-4, 0x1.4147ae147ae12p-2, 0x1.ca3d70a3d70aap-3, 0x1.b333333333334p-3, 0x1.470a3d70a3d70p-2, 0x1.4000000000000p-3, 0x1.3a3d70a3d70a3p-3, 0x1.999999999999ap-4, 0x1.b4f5c28f5c28fp-4, 0x1.a0ccccccccccdp-4, 0x1.9a7a3d70a3d71p-4}},
    {"cyclical, exponential",
     {0x1.999999999999ap-4, 0x1.f54c985f06f64p-4, 0x1.280a6b93ccd0ap-3, 0x1.54fa0c55cebefp-3, 0x1.d916adecd5199p-3, 0x1.021e81eb720b3p-2, 0x1.2c9cfecd485e6p-2, 0x1.4189287d1ecc5p-2, 0x1.563e7da5694fbp-2, 0x1.039f4c14c22d3p-1, 0x1.5414e106b7f95p-1, 0x1.5c8c7ca1a9c4ep-1, 0x1.64ec91db6e37cp-1, 0x1.4a8c374f8e026p-1, 0x1.402f5058699bdp-1, 0x1.19bc7154a8e54p-2, 0x1.089e1ed530832p-2, 0x1.999999999999ap-4, 0x1.70ea25d00b27cp-2, 0x1.bcfbeb891ce5fp-3, 0x1.a60eb1e92c862p-3, 0x1.b1ca63009a4ecp-2, 0x1.99aa1c1b4c81ep-3, 0x1.8e72baa5045cep-3, 0x1.999999999999ap-4, 0x1.243286b267988p-3, 0x1.d0c5f72e91ffep-4, 0x1.b1a2da1e683b3p-4}},
    {"chained",
     {0x1.0000000000000p+0, 0x1.fae147ae147aep-1, 0x1.f5cfaacd9e83ep-1, 0x1.f0cb07d0aed99p-1, 0x1.e209afa7055ecp-1, 0x1.ad7ee70097791p-1, 0x1.a4f2e12017f0bp-1, 0x1.a0bd402773dc6p-1, 0x1.9c9265e99e38ep-1, 0x1.5333ce3401708p-1, 0x1.f5fc2135f95bap-2, 0x1.f0f70c6613064p-2, 0x1.ebfed1650db6dp-2, 0x1.2b4f81b22dac4p-2, 0x1.28514584e06a8p-2, 0x1.8c96daac912c9p-3, 0x1.615c6d55a9494p-3, 0x1.1f9db5babdd5ep-3, 0x1.5a72f365d7856p-4, 0x1.9102e5e193005p-6, 0x1.8d004f1a32cfbp-6, 0x1.d02aa89d7b55bp-8, 0x1.33d4faabad048p-11, 0x1.12473c881132ep-11, 0x1.732f704f974fap-15, 0x1.53e814133af4fp-22, 0x1.91b46d62bb3d8p-26, 0x1.e7eaa2ecd1adap-37}},
    {"sequential",
     {0x1.999999999999ap-4, 0x1.28f5c28f5c28fp-3, 0x1.851eb851eb851p-3, 0x1.e147ae147ae14p-3, 0x1.7ae147ae147aep-2, 0x1.a8f5c28f5c290p-2, 0x1.028f5c28f5c29p-1, 0x1.199999999999ap-1, 0x1.30a3d70a3d70bp-1, 0x1.0000000000000p+0, 0x1.d3b8885c8c60bp-1, 0x1.cf0b2ad680bbep-1, 0x1.ca69c691cc3f2p-1, 0x1.7e8d573b46ac3p-1, 0x1.7aba01e115537p-1, 0x1.38e45bdba1833p-1, 0x1.35c35af0797f5p-1, 0x1.1824ea59b7088p-1, 0x1.cee487d909306p-2, 0x1.180d8a3dce0d8p-2, 0x1.15409ac76d45bp-2, 0x1.52de0da8baff5p-3, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.d484471283d4fp-3, 0x1.8850bc9479cfdp-7, 0x1.4318d6e1f2104p-9, 0x1.ef23eecec32bcp-16}},
};

/// The rate after each of these metrics, with patience 2, cooldown 1, factor 0.3 and threshold 0.01.
inline const std::vector<double> plateau_metrics{0x1.0000000000000p+0, 0x1.ccccccccccccdp-1, 0x1.ca3d70a3d70a4p-1, 0x1.c9374bc6a7efap-1, 0x1.c8b4395810625p-1, 0x1.c83126e978d50p-1, 0x1.c7ae147ae147bp-1, 0x1.0000000000000p-1, 0x1.3333333333333p-1, 0x1.3333333333333p-1, 0x1.3333333333333p-1, 0x1.3333333333333p-1, 0x1.3333333333333p-1, 0x1.3333333333333p-1, 0x1.999999999999ap-2, NAN, 0x1.0000000000000p-1, 0x1.0000000000000p-1, 0x1.0000000000000p-1};
inline const std::vector<PlateauFigures> plateau_figures{
    {true, false,
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6}},
    {true, true,
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6}},
    {false, false,
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6}},
    {false, true,
     {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.0000000000000p+0, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.3333333333333p-2, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.70a3d70a3d70ap-4, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.ba5e353f7ced9p-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6, 0x1.47ae147ae147bp-6}},
};

}  // namespace espalier::testing
