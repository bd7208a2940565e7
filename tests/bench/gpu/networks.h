// Training steps of convolutional and recurrent networks, and attention alone.
#pragma once

/// The document's network with 256 digits of 8×8, and ResNet-18 with 64 images of 224×224.
void vision(int rounds);
/// An LSTM of two layers, with 64 sequences of 100 steps.
void lstm(int rounds);
/// Causal attention of 8 × 16 heads of 1,024 tokens and width 64, eagerly, without and with its gradients.
void attention(int rounds);
